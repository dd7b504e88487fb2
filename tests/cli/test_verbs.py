"""Output of successful verbs, in words and as JSON."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CHECKOUT, Write, Zenc

BODY = "{ communication: ring aggregation: incremental partition: parallelism balance: imbalanced push: coo pull: coo }"
ONE_SCHEME = f"scheme first {BODY}"
TWO_SCHEMES = f"{ONE_SCHEME}\nscheme second {BODY}"
SEEDS: list[list[str]] = [[], ["--set", "seed=0x5eed"], ["--set", "seed=8"]]


def test_version(zenc: Zenc) -> None:
    assert re.fullmatch(r"zenc \d+\.\d+\.\d+\n", zenc("--version").stdout)


def test_check_by_name_and_by_path_agree(zenc: Zenc) -> None:
    by_name = zenc("check", "balanced", "--ranks", "6")
    by_path = zenc("check", str(CHECKOUT / "schemes/balanced.zen"), "--ranks", "6")
    assert by_name.returncode == by_path.returncode == 0
    assert by_name.stdout == by_path.stdout
    assert "balanced is proved for 6 ranks (push 1 step, pull 1 step)" in by_name.stdout


def test_check_proves_a_range_of_sizes(zenc: Zenc) -> None:
    report = json.loads(zenc("check", "balanced", "--json").stdout)
    assert report["ok"] is True
    assert report["scheme"] == "balanced"
    assert report["sizes"] == list(range(1, 17))
    assert "proved for 1 to 16 ranks" in zenc("check", "balanced").stdout


def test_a_file_in_the_folder_comes_before_a_shipped_scheme(zenc: Zenc, write: Write) -> None:
    name = write("balanced", ONE_SCHEME)
    assert "first is proved" in zenc("check", name).stdout


def test_scheme_chooses_among_several(zenc: Zenc, write: Write) -> None:
    name = write("two.zen", TWO_SCHEMES)
    assert "second is proved" in zenc("check", name, "--scheme", "second").stdout
    without = zenc("check", name).stderr
    assert "error[several-schemes]" in without and "choose one by its name: --scheme first" in without


def test_set_changes_the_plan(zenc: Zenc) -> None:
    digests = {json.loads(zenc("check", "balanced", "--json", *more).stdout)["digest"] for more in SEEDS}
    assert len(digests) == 2


def test_explain_counts_bytes(zenc: Zenc) -> None:
    arguments = ["explain", "balanced", "--ranks", "4", "--units", "60000", "--width", "65", "--density", "0.01"]
    report = json.loads(zenc(*arguments, "--json").stdout)
    assert report["size"] == 4
    assert 0 < report["bytes"]["total"]["sent"] < report["dense_ring_bytes"]
    done = zenc(*arguments, "--rank", "1")
    assert done.returncode == 0
    assert "rank 1" in done.stdout


def test_explain_counts_recorded_gradients(zenc: Zenc, tmp_path: Path) -> None:
    recorded = {"units": 100, "width": 8, "ranks": [[1, 2, 3], [2, 3, 4]]}
    (tmp_path / "recorded.json").write_text(json.dumps(recorded))
    report = json.loads(zenc("explain", "agsparse", "--indices", "recorded.json", "--json").stdout)
    assert report["size"] == 2 and report["gradients"]["density_out"] == 0.04
    assert report["bytes"]["total"]["sent"] == report["busiest"]["bytes"] == 48 + 16 + 16 + 96
    other = zenc("explain", "agsparse", "--indices", "recorded.json", "--ranks", "3")
    assert other.returncode == 1 and "error[bad-load]" in other.stderr


def test_compile_writes_a_directory(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("compile", "balanced", "--ranks", "4", "--json", "-o", "out")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert json.loads(done.stdout)["manifest"] == manifest
    assert manifest["size"] == 4
    assert (tmp_path / "out/plan.json").is_file()


def test_compile_names_its_own_directory(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("compile", "dense_ring", "--target", "plan")
    assert done.returncode == 0, done.stderr
    assert "dense_ring for any number of ranks, target plan" in done.stdout
    assert sorted(path.name for path in (tmp_path / "build" / "dense_ring").iterdir()) == [
        "manifest.json",
        "plan.json",
        "sources",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
def test_compile_for_gpus(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("compile", "agsparse", "--target", "cuda", "--arch", "sm_90", "--arch", "sm_90", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "target cuda (sm_90)" in done.stdout
    assert done.stderr.count("compiling") == done.stderr.count("compiled") == 1
    again = zenc("compile", "agsparse", "--target", "cuda", "--arch", "sm_90", "--json", "-o", "again")
    assert "compiling" not in again.stderr, "it is in the cache"
    told, cache = json.loads(again.stdout), zenc("cache", "path").stdout.strip()
    assert list(told["manifest"]["cubins"]) == ["sm_90"]
    assert told["cache"] == cache and f"in the cache, too, where loading finds them: {cache}" in done.stdout
    assert (tmp_path / "out/sm_90.cubin").read_bytes() == (tmp_path / "again/sm_90.cubin").read_bytes()


def test_compile_for_gpus_where_it_is_loaded(zenc: Zenc, tmp_path: Path) -> None:
    nowhere = {"ZENC_CUDA_COMPILER": "/nowhere/libnvrtc.so"}
    done = zenc("compile", "agsparse", "--target", "cuda", **nowhere)
    assert done.returncode == 1 and "error[cuda-compiler-missing]" in done.stderr and "--arch none" in done.stderr
    done = zenc("compile", "agsparse", "--target", "cuda", "--arch", "none", "-o", "out", **nowhere)
    assert done.returncode == 0 and "target cuda (none)" in done.stdout, done.stderr
    assert (tmp_path / "out/kernels.cu").is_file() and not list((tmp_path / "out").glob("*.cubin"))


def test_list_shows_every_shipped_scheme(zenc: Zenc) -> None:
    entries = json.loads(zenc("list", "--json").stdout)["schemes"]
    names = {entry["name"] for entry in entries}
    assert "balanced" in names
    shown = zenc("list", COLUMNS="0").stdout.splitlines()  # a terminal that does not know its width
    assert [line.split()[0] for line in shown[1:] if not line.startswith(" ")] == sorted(names)


def test_list_fits_120_columns(zenc: Zenc) -> None:
    shown = zenc("list", COLUMNS="0").stdout.splitlines()  # a terminal that does not know its width
    assert max(map(len, shown)) <= 120
    rows = {line.split()[0]: " ".join(line.split()) for line in shown}
    assert rows["name"] == "name communication aggregation partition balance formats"
    assert rows["zen_cluster"] == "zen_cluster 2 tiers hierarchical_hash"
    assert rows["node(8)"] == "node(8) ring incremental parallelism dense"
    assert rows["cluster"] == "cluster point_to_point incremental parallelism coo / bitmap"
    assert rows["agsparse"] == "agsparse point_to_point one_shot centralization - coo"
    assert rows["balanced"] == "balanced point_to_point incremental parallelism permutation auto / bitmap"
    assert rows["kylix"] == "kylix butterfly incremental parallelism permutation auto"
    (below,) = shown[[line.split()[0] for line in shown].index("topk_a2a") + 1 :][:1]
    assert below == "  select top_of_parts(0.01), feedback residual"
    assert rows["topk_a2a"] == "topk_a2a point_to_point then ring incremental parallelism imbalanced coo / dense"


@pytest.mark.parametrize(("columns", "lines"), [(120, 2), (60, 3)])
def test_list_on_a_terminal_says_what_they_are(columns: int, lines: int) -> None:
    """Each scheme has a row and a sentence, or a paragraph where the terminal is narrow."""
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    text = on_a_terminal([sys.executable, "-m", "zenc", "list"], environment).replace("\r\n", "\n")
    row, *below = text.partition("\ndense_ring")[2].splitlines()[:lines]
    assert ("incremental" in row) == (columns == 120)
    assert below[-1].startswith("  Dense ring all-reduce: reduce-scatter, then")


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """Return what ``command`` prints where its standard output is a terminal."""
    main, terminal = pty.openpty()
    with subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=terminal) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while packet := os.read(main, 4096):
                shown += packet
    os.close(main)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


def test_a_choice_is_told_candidate_by_candidate(zenc: Zenc) -> None:
    explained = zenc("explain", "auto", "--ranks", "4", "--units", "5000")
    assert "auto chooses; the busiest rank of each candidate moves" in explained.stdout
    report = json.loads(zenc("explain", "auto", "--ranks", "4", "--units", "5000", "--json").stdout)
    bytes_of = {name: candidate["bytes"] for name, candidate in report["candidates"].items()}
    assert report["choice"] == "auto"
    assert report["busiest"]["bytes"] == min(bytes_of.values()) < bytes_of["dense_ring"]
    assert "dense_ring" in zenc("list").stdout.partition("chooses from 4")[2]
    assert "error[choice-of-schemes]" in zenc("draw", "auto").stderr


def test_cache(zenc: Zenc, tmp_path: Path) -> None:
    assert zenc("cache", "path").stdout.strip() == str(tmp_path / "cache")
    assert json.loads(zenc("cache", "list", "--json").stdout) == {"ok": True, "entries": []}
    assert "0 compiled" in zenc("cache", "list").stdout
    unit = tmp_path / "cache" / ("ab" * 32)
    unit.mkdir(parents=True)
    (unit / "manifest.json").write_text('{"target": "cpu"}')
    (unit / "for-balanced").touch()
    heading, line, total = zenc("cache", "list").stdout.splitlines()
    assert heading.split() == ["compiled", "target", "bytes", "key", "schemes"]
    assert line.split()[2:] == ["cpu", "17", "ab" * 6, "balanced"] and total.startswith("1 compiled, 17 bytes")
    (entry,) = json.loads(zenc("cache", "list", "--json").stdout)["entries"]
    assert (entry["target"], entry["schemes"], entry["bytes"]) == ("cpu", ["balanced"], 17)
    assert json.loads(zenc("cache", "clear", "--json").stdout)["removed"] == ["ab" * 32]
    assert json.loads(zenc("cache", "clear", "--json").stdout)["removed"] == []


SIX = """scheme six {
    communication: schedule {
        push { require size == 6 "six of us"  step { send all to 0 where rank > 0 } }
        pull { step { for r in 1 .. size - 1 { send all to r where rank == 0 } } }
    }
    aggregation: incremental
    partition: centralization
}
"""


def test_a_scheme_for_one_number_of_ranks_needs_no_number(zenc: Zenc, write: Write) -> None:
    name = write("six.zen", SIX)
    assert json.loads(zenc("explain", name, "--json").stdout)["size"] == 6
    assert zenc("draw", name, "-o", "six.svg").stdout == "six.svg: six among 6 ranks, 10 moves in 2 steps\n"
    assert zenc("compile", name).stdout.startswith(
        "build/six: six for any number of ranks that it allows (proved for 6 ranks), target cpu"
    )
    assert zenc("compile", name, "--ranks", "6").stdout.startswith("build/six: six for 6 ranks, ")
    assert zenc("compile", "agsparse").stdout.startswith("build/agsparse: agsparse for any number of ranks, ")
