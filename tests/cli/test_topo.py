"""``zenc topo`` and ``zenc synthesize``, as a user runs them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import Write, Zenc
from zenc.cli import app

SAMPLES = Path(__file__).parents[1] / "topology" / "samples"
TEXT = """topology pair(width = 300) {
    "Two devices."
    levels: gpu(2)
    memory gpu: 80 GB
    link gpu(0) - gpu(1): width GB/s, 1 us
}
topology triple { like ring(3) }
"""


def test_show(zenc: Zenc, write: Write) -> None:
    done = zenc("topo", "show", write("mine.zen", TEXT) + ":pair", "--set", "width=50")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.split("\n") == [
        "pair",
        "Two devices.",
        "",
        "levels     gpu 2",
        "ranks      2: gpu(0) to gpu(1), 80 GB each",
        "switches   none",
        "links      count  ends       each way  latency  kind",
        "           1      gpu - gpu  50 GB/s   1 us     link",
        "bisection  50 GB/s between the first half of the ranks and the second",
        "routes     from every rank to every other",
        "",
    ]


def test_show_as_json(zenc: Zenc, write: Write) -> None:
    shown = json.loads(zenc("topo", "show", write("mine.zen", TEXT) + ":triple", "--json").stdout)
    assert (shown["ok"], shown["ranks"], shown["pairs"], shown["pairs_with_route"]) == (True, 3, 6, 6)
    assert shown["links"][0]["count"] == 3 and shown["bisection"] == 100e9
    assert shown["levels"] == [{"name": "gpu", "count": 3}]


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_show_what_other_programs_write(zenc: Zenc, path: Path) -> None:
    done = zenc("topo", "show", str(path))
    assert done.returncode == 0, done.stderr
    assert "levels " in done.stdout and "bisection " in done.stdout


def test_show_a_builder_and_a_shipped_one(zenc: Zenc) -> None:
    assert "ranks      32: gpu(0, 0) to gpu(3, 7)" in zenc("topo", "show", "nodes(4, gpus = 8)").stdout
    assert "levels     node 2, gpu 4" in zenc("topo", "show", "two_boxes").stdout
    assert "for 8 of 12 pairs of ranks" in zenc("topo", "show", "ring(4)").stdout


def test_several_in_a_file(zenc: Zenc, write: Write) -> None:
    done = zenc("topo", "show", write("mine.zen", TEXT))
    assert done.returncode == 1
    assert done.stderr.startswith("mine.zen:7:10: error[several-topologies]")
    assert "choose one by its name: mine.zen:pair" in done.stderr


@pytest.mark.parametrize("what", ["nothing.zen", "rng(3)", "nodes(2, gpu = 3)", "mine.zen:pare"])
def test_what_is_none_is_a_diagnostic(zenc: Zenc, write: Write, what: str) -> None:
    write("mine.zen", TEXT)
    done = zenc("topo", "show", what, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
    assert "error[" in done.stderr and "Traceback" not in done.stderr


def test_draw(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("topo", "show", "dgx(2)", "-o", "dgx.svg")
    assert done.returncode == 0 and "levels     node 2, gpu 8" in done.stdout
    drawn = (tmp_path / "dgx.svg").read_text()
    assert drawn.startswith("<svg") and "nvswitch(0)" in drawn
    assert "error[drawing-too-large]" in zenc("topo", "show", "ring(1000)", "-o", "ring.svg").stderr


def test_convert(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("topo", "convert", "dgx(2)", "-o", "out.json")
    assert (done.returncode, done.stdout) == (0, "out.json: dgx(2), 16 ranks, 112 links, each direction counted\n")
    again = zenc("topo", "show", "out.json").stdout.split("\n")
    assert again[3:] == zenc("topo", "show", "dgx(2)").stdout.split("\n")[3:]
    assert json.loads(zenc("topo", "convert", "ring(3)", "-o", "-").stdout)["directed"] is True
    assert "error[unwritable-file]" in zenc("topo", "convert", "ring(3)", "-o", "no/such/folder.json").stderr


def test_list(zenc: Zenc) -> None:
    listed = json.loads(zenc("topo", "list", "--json").stdout)
    assert {entry["name"] for entry in listed["topologies"]} == {"p3", "two_boxes"}
    assert [entry["name"].split("(")[0] for entry in listed["builders"]] == [
        "ring", "torus", "fat_tree", "nodes", "dragonfly", "dgx"
    ]  # fmt: skip
    assert "two_boxes\n  Machines with NVSwitch" in zenc("topo", "list").stdout


def test_show_draws(zenc: Zenc, write: Write, tmp_path: Path) -> None:
    name = write("mine.zen", TEXT)
    plain = zenc("topo", "show", f"{name}:triple")
    done = zenc("topo", "show", f"{name}:triple", "-o", "triple.svg")
    assert (done.returncode, done.stdout) == (0, plain.stdout + "drawing    triple.svg\n")
    root = ElementTree.parse(tmp_path / "triple.svg").getroot()
    kinds = [group.get("class") for group in root.iter("{http://www.w3.org/2000/svg}g")]
    assert (kinds.count("spot"), kinds.count("link")) == (3, 3)
    report = json.loads(zenc("topo", "show", f"{name}:triple", "-o", "triple.svg", "--json").stdout)
    assert report["file"] == "triple.svg"


def test_values_after_a_path(zenc: Zenc, write: Write) -> None:
    name = write("mine.zen", TEXT)
    told = zenc("topo", "show", f"{name}:pair", "--set", "width=50").stdout
    assert zenc("topo", "show", f"{name}:pair(width = 50)").stdout == told
    done = zenc("topo", "show", f"{name}:pair(50)")
    assert done.returncode == 1
    assert "error[wrong-arguments]: mine.zen:pair takes values with their names" in done.stderr


def test_the_file_is_a_scheme_and_the_table_names_the_cut(tmp_path: Path) -> None:
    file = str(tmp_path / "ring.zen")
    run = CliRunner().invoke(app, ["synthesize", "ring(4)", "--chunks", "2", "-o", file])
    assert run.exit_code == 0 and "to gpu(0), for what belongs to 3 ranks" in run.output
    checked = CliRunner().invoke(app, ["check", file, "--json"])
    assert checked.exit_code == 0 and json.loads(checked.stdout)["ok"]


def test_json_has_the_bound_and_the_text() -> None:
    found = json.loads(CliRunner().invoke(app, ["synthesize", "ring(4)", "--json"]).stdout)
    assert found["ok"] and found["text"].count("tree parts") == found["trees"]
    assert 0.95 < found["share"] <= 1 and found["seconds"] * found["bound"] >= found["bytes"]


def test_too_many_ranks_are_an_error_with_its_id() -> None:
    run = CliRunner().invoke(app, ["synthesize", "ring(4096)", "--json"])
    assert run.exit_code == 1 and json.loads(run.stdout)["diagnostics"][0]["id"] == "topology-too-large"
