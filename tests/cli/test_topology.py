"""``--topology``: output of verbs for a scheme on a cluster."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cli.conftest import Write, Zenc

CLUSTER = """topology small {
    levels: node(2), gpu(2)
    switch hub
    for n in 0 .. 1 { for g in 0 .. 1 { link gpu(n, g) - hub: 10 GB/s } }
}
"""


def test_check_takes_the_ranks_of_a_file(zenc: Zenc, write: Write) -> None:
    done = zenc("check", "balanced", "--topology", write("cluster.zen", CLUSTER))
    assert (done.returncode, done.stderr) == (0, "")
    assert "balanced is proved for 4 ranks" in done.stdout
    assert "on small, of 4 ranks: every move has a way\n  bottleneck  gpu(" in done.stdout


def test_check_by_the_name_in_a_file(zenc: Zenc, write: Write) -> None:
    two = CLUSTER + CLUSTER.replace("small", "other").replace("gpu(2)", "gpu(3)").replace(
        "0 .. 1 { link", "0 .. 2 { link"
    )
    done = zenc("check", "balanced", "--topology", f"{write('two.zen', two)}:other")
    assert "proved for 6 ranks" in done.stdout, done.stderr


def test_json_has_links_and_memory(zenc: Zenc) -> None:
    report = json.loads(zenc("check", "balanced", "--topology", "nodes(2, gpus = 2)", "--json").stdout)
    assert report["sizes"] == [4]
    assert {"bottleneck", "bottleneck_least_bytes", "links", "steps", "memory", "topology"} == set(report["placement"])
    assert [found["id"] for found in report["diagnostics"]] == ["contended-link", "contended-link"]
    assert "placement" not in json.loads(zenc("check", "balanced", "--json").stdout)


@pytest.mark.parametrize("verb", ["check", "compile", "draw", "explain"])
def test_a_move_without_a_way(zenc: Zenc, verb: str) -> None:
    done = zenc(verb, "balanced", "--topology", "ring(5)")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "error[no-route]: rank 0 has no way to rank 2 on ring(5) (push, step 1)" in done.stderr
    assert "help: ranks forward nothing by themselves: send to rank 1 first" in done.stderr


def test_gradients_that_do_not_fit(zenc: Zenc) -> None:
    arguments = ["check", "balanced", "--topology", "dgx(1)", "--units", "100000000", "--density", "1"]
    assert "error[memory-exceeded]" in zenc(*arguments, "--width", "256").stderr
    assert zenc(*arguments, "--width", "16").returncode == 0
    assert "error[bad-load]" in zenc(*arguments, "--dtype", "i8").stderr
    assert "error[bad-load]" in zenc("explain", "balanced", "--ranks", "4", "--width", str(1 << 63)).stderr


def test_what_is_compiled_is_for_the_ranks(zenc: Zenc, tmp_path: Path) -> None:
    for where, arguments in (("on", ["--topology", "ring(4)"]), ("off", ["--ranks", "4"])):
        done = zenc("compile", "dense_ring", *arguments, "--target", "plan", "-o", where)
        assert done.returncode == 0, done.stderr
    on, off = ((tmp_path / where / "plan.json").read_text() for where in ("on", "off"))
    assert on == off and json.loads(on)["size"] == 4


def test_a_drawing_with_loads(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("draw", "balanced", "--topology", "nodes(2, gpus = 2)", "-o", "loads.svg")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "loads.svg").read_text()
    ElementTree.fromstring(text)
    assert text.count("busiest link on the way: nvswitch(0) -&gt; nic(0, 0), ") == 8
    report = json.loads(zenc("draw", "balanced", "--topology", "nodes(2, gpus = 2)", "--json").stdout)
    assert report["topology"] == "nodes(2, gpus = 2)"
    moves = [move for step in report["steps"] for move in step["moves"]]
    assert all(move["load"]["seconds"] > 0 for move in moves)


def test_explain_shows_links_and_steps(zenc: Zenc) -> None:
    done = zenc("explain", "balanced", "--topology", "nodes(2, gpus = 2)")
    assert done.returncode == 0
    assert "4 ranks, 4 parts" in done.stdout
    assert "on nodes(2, gpus = 2), of 4 ranks: every move has a way" in done.stdout
    assert "links by load (12 of 16 that carry anything)" in done.stdout
    assert "  push, step 1: " in done.stdout.partition("busiest link of each step")[2]
    assert "warning[contended-link]" in done.stderr
    report = json.loads(zenc("explain", "balanced", "--topology", "nodes(2, gpus = 2)", "--json").stdout)
    assert report["placement"]["topology"] == "nodes(2, gpus = 2)" and report["size"] == 4


def test_explain_tells_the_cost_in_general(zenc: Zenc) -> None:
    done = zenc("explain", "balanced", "--ranks", "4")
    assert "  pull  1 step, n - 1 messages, volume (n - 1)/n d_n M\n" in done.stdout
    report = json.loads(zenc("explain", "balanced", "--ranks", "4", "--json").stdout)
    assert report["general"]["formulas"]["push"]["sent"] == "(n - 1)/n d M"
    assert report["general"]["counted"]["push"]["sent"] == {"1": "3/4"}


TIERS = "scheme mine { tier node: dense_ring tier cluster: balanced }"


@pytest.mark.parametrize("verb", ["check", "compile", "draw", "explain"])
def test_tiers_take_their_sizes_from_the_levels(zenc: Zenc, write: Write, verb: str) -> None:
    name, topology = write("mine.zen", TIERS), "nodes(2, gpus = 4)"
    output = {"compile": ["-o", "made"], "draw": ["-o", "made.svg"]}.get(verb, [])
    done = zenc(verb, name, "--topology", topology, *output)
    assert done.returncode == 0, done.stderr
    without = zenc(verb, name, *output)
    assert without.returncode == 1 and "mine.zen:1:20: error[tier-size]: tier 'node' has no size" in without.stderr


def test_tiers_of_other_names_are_told_the_levels(zenc: Zenc, write: Write) -> None:
    name = write("mine.zen", TIERS.replace("tier node", "tier nodes"))
    done = zenc("check", name, "--topology", "nodes(2, gpus = 4)")
    assert done.returncode == 1 and "note: levels: node, gpu (did you mean 'node'?)" in done.stderr


def test_a_file_with_values(zenc: Zenc, write: Write) -> None:
    write("box.txt", "     GPU0 GPU1 NIC0\nGPU0 X    NV4  PHB\nGPU1 NV4  X    PHB\nNIC0 PHB  PHB  X\n")
    done = zenc("check", "balanced", "--topology", "box.txt(nodes = 4, network_bandwidth = 25 Gbit/s)")
    assert "proved for 8 ranks" in done.stdout, done.stderr
    assert "on box, of 8 ranks" in done.stdout
