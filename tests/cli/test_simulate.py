"""``zenc simulate``, as a user runs it."""

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cli.conftest import Write, Zenc
from zenc.gradients.profile_generators import uniform, zipf
from zenc.gradients.profile_io import dump_profiles
from zenc.simulator.calibration import DEFAULTS

LOAD = ("--units", "20000", "--density", "0.02", "--zipf", "1.05")


def test_a_table_best_first(zenc: Zenc) -> None:
    done = zenc("simulate", "dense_ring", "balanced", "kylix", "--ranks", "8,7", "--bandwidth", "100 Mbit/s", *LOAD)
    assert done.returncode == 0, done.stderr
    eight, seven = done.stdout.split("\n\n")
    assert eight.splitlines()[0] == "8 ranks, density 0.02, 12.5 MB/s a rank each way"
    rows = [line.split() for line in eight.splitlines()[2:]]
    assert {name for name, *_ in rows} == {"balanced", "kylix", "dense_ring"}
    ratios = [float(ratio) for _, _, _, ratio, *_ in rows]
    assert ratios == sorted(ratios) and ratios[0] == 1 and rows[-1][0] == "dense_ring"
    assert "kylix" not in seven and "kylix is left out at 7 ranks" in done.stderr


def test_json_plot_and_trace(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("simulate", "balanced", "sparcml", "--ranks", "2,4,8", *LOAD, "--json", "--plot", "a.svg")
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert [point["ranks"] for point in points] == [2, 4, 8]
    assert {outcome["scheme"] for outcome in points[0]["outcomes"]} == {"balanced", "sparcml"}
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert zenc("simulate", "balanced", "--ranks", "4", *LOAD, "--trace", "t.json").returncode == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X" and event["name"] in ("push 1", "pull 1")]
    assert [event["name"] for event in steps] == ["push 1", "pull 1"]
    assert steps[0]["ts"] + steps[0]["dur"] <= steps[1]["ts"]
    assert all(event["args"]["sent bytes"] > 0 for event in steps)
    bars = [event for event in events if event["ph"] == "X"]
    seconds = bars[-1]["ts"] + bars[-1]["dur"]
    assert [bars[0]["name"], bars[-1]["name"]] == ["pack", "expand"] and bars[0]["dur"] == pytest.approx(bars[1]["ts"])
    assert all(one["ts"] + one["dur"] == pytest.approx(other["ts"]) for one, other in itertools.pairwise(bars))
    (told,) = json.loads(zenc("simulate", "balanced", "--ranks", "4", *LOAD, "--json").stdout)["points"][0]["outcomes"]
    assert told["seconds"] * 1e6 == pytest.approx(seconds)


def test_a_trace_has_a_row_for_each_kind_of_ranks(zenc: Zenc, tmp_path: Path) -> None:
    assert zenc("simulate", "sparse_ps", "--ranks", "4", *LOAD, "--trace", "t.json").returncode == 0
    names = [event["args"]["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"][:5]]
    assert names == ["sparse_ps, 4 ranks", "rank 0", "rank 1", "rank 2", "rank 3"]


def test_gradients_of_a_file_one_after_another(zenc: Zenc, write: Write) -> None:
    file = write(
        "model.json", dump_profiles([zipf(0.02, 1.05, 20_000, 8, name="words"), uniform(0.1, 5000, name="tags")])
    )
    common = ("simulate", "balanced", "--profile", file, "--json")

    def seconds(*more: str) -> float:
        (outcome,) = json.loads(zenc(*common, *more).stdout)["points"][0]["outcomes"]
        return float(outcome["seconds"])

    words, tags = seconds("--parameter", "words"), seconds("--parameter", "tags")
    assert seconds() == pytest.approx(words + tags)
    assert seconds("--ready", "words=1s") == pytest.approx(1 + words)


def test_what_is_a_guess_is_called_so(zenc: Zenc, write: Write) -> None:
    """The table and the JSON mark a guess, and standard error warns that the spread of units is assumed."""
    common = ("simulate", "balanced", "--ranks", "4", "--units", "1000")
    done, data = zenc(*common), zenc(*common, "--json").stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not calibrated: links of 12.5 GB/s, 20 us a step, TCP that loses 5 kB")
    assert json.loads(data)["notes"] == [last]
    assert "warning[even-gradient]" in done.stderr and "favours schemes that gather" in done.stderr
    write("here.json", json.dumps(DEFAULTS.to_json()))
    told = zenc("simulate", "balanced", "--ranks", "4", *LOAD, "--calibration", "here.json", "--json")
    assert "even-gradient" not in told.stderr and json.loads(told.stdout)["notes"] == []


def test_gpus_have_kernels_of_gpus(zenc: Zenc) -> None:
    """A million rows of 64 values at 1 % take one core 8 ms, and a GPU less than the wire."""

    def kernels(*more: str) -> float:
        done = zenc("simulate", "balanced", "--topology", "dgx(4)", "--json", *more)
        assert done.returncode == 0, done.stderr
        assert ("kernels as one H100 took them" in done.stdout) == (not more)
        (point,) = json.loads(done.stdout)["points"]
        found = {each["scheme"]: each["gradients"]["uniform"] for each in point["outcomes"]}
        assert list(found) == (["balanced"] if more else ["DDP, dense", "balanced"])
        return float(found["balanced"]["kernels"])

    assert kernels() < 1e-3 < 5e-3 < kernels("--device", "cpu")


def test_a_range_of_ranks_doubles_them(zenc: Zenc) -> None:
    points = json.loads(zenc("simulate", "balanced", "--ranks", "1,3..13", *LOAD, "--json").stdout)["points"]
    assert [point["ranks"] for point in points] == [1, 3, 6, 12, 13]


def test_on_a_topology(zenc: Zenc) -> None:
    done = zenc("simulate", "balanced", "--topology", "nodes(2, gpus = 4)", *LOAD)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("8 ranks, density 0.02\n") and "nic" in done.stdout


def test_on_a_single_device_nothing_travels(zenc: Zenc) -> None:
    done = zenc("simulate", "balanced", "--topology", "ring(1)", *LOAD)
    assert done.returncode == 0 and re.search(r"DDP, dense +0 us .* -\n", done.stdout), done.stderr
