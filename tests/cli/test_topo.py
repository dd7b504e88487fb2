"""``zenc topo`` and ``synthesize``, and verbs for a scheme on a cluster, as a user runs them."""

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


def test_convert(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("topo", "convert", "dgx(2)", "-o", "out.json")
    assert (done.returncode, done.stdout) == (0, "out.json: dgx(2), 16 ranks, 112 links, each direction counted\n")
    again = zenc("topo", "show", "out.json").stdout.split("\n")
    assert again[3:] == zenc("topo", "show", "dgx(2)").stdout.split("\n")[3:]
    assert json.loads(zenc("topo", "convert", "ring(3)", "-o", "-").stdout)["directed"] is True


def test_list(zenc: Zenc) -> None:
    listed = json.loads(zenc("topo", "list", "--json").stdout)
    assert listed["ok"] and {entry["name"] for entry in listed["topologies"]} == {"p3", "two_boxes"}
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
    assert "error[drawing-too-large]" in zenc("topo", "show", "ring(1000)", "-o", "ring.svg").stderr


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


def test_a_density_names_the_form() -> None:
    given = ["synthesize", "ring(4)", "--bytes", "5e6", "--density", "0.02", "--json"]
    found = json.loads(CliRunner().invoke(app, given).stdout)
    assert found["density"] == pytest.approx(0.02) and "for 5 MB if dense" in found["text"]


def test_too_many_ranks_are_an_error_with_its_id() -> None:
    run = CliRunner().invoke(app, ["synthesize", "ring(4096)", "--json"])
    assert run.exit_code == 1 and json.loads(run.stdout)["diagnostics"][0]["id"] == "topology-too-large"


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
