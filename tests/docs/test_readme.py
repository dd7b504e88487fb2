"""The README against the program's commands and the measured numbers."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from benchmarks import fast_networks
from tests.docs.pages import ROOT
from zenc.api import draw as draw_file
from zenc.cli import app
from zenc.language.files import locate
from zenc.scheme.library import shipped

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MEASURED = ROOT / "docs" / "benchmarks"


def verbs(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands that do something, by name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from verbs(below, f"{name} {word}".strip())


VERBS = dict(verbs(get_command(app)))
LINES = re.findall(r"^zenc .*?(?=   ?\S.*$)", README, re.MULTILINE)


def named(words: list[str]) -> str:
    """Return the verb that a command line names."""
    return next(name for name in (" ".join(words[:2]), words[0]) if name in VERBS)


def test_the_list_has_every_command_and_no_other():
    shown = {shlex.split(line)[1] for line in LINES}
    assert shown == {name.split()[0] for name in VERBS}


def test_commands_of_the_list_exist_with_their_options():
    for line in LINES:
        words = shlex.split(line)[1:]
        options = {option for parameter in VERBS[named(words)].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_each_command_takes_json():
    assert "Each takes `--json`" in README
    assert [name for name, verb in VERBS.items() if not any("--json" in each.opts for each in verb.params)] == []


def measured(name: str) -> Any:
    return json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))


DEMO = measured("demo/hosts-4")["networks"]
SLOW, ALONE = DEMO["100 Mbit/s"], DEMO["one machine"]


def milliseconds(run: Any, peer: str) -> float:
    return 1e3 * float(run["peers"][peer]["seconds"]["median"])


def gain(run: Any) -> float:
    """Return how many times as fast zenc's fastest step is as PyTorch's slowest one."""
    taken = {peer: milliseconds(run, peer) for peer in run["peers"] if peer != "no-sync"}
    torch = {peer for peer in taken if peer.startswith(("ddp-", "torch-"))}
    return max(taken[peer] for peer in torch) / min(taken[peer] for peer in taken.keys() - torch)


def rows() -> list[list[str]]:
    """Return the rows of the table of measurements, without its head: network, measured, zenc, PyTorch, command."""
    lines = README.partition("| network |")[2].partition("\n\n")[0].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines]


def test_the_first_figure_is_the_greatest_gain_of_a_training_step():
    files = sorted(path for folder in ("dense", "steps") for path in (MEASURED / folder).glob("*.json"))
    runs = (json.loads(path.read_text(encoding="utf-8")) for path in files)
    steps = [run for run in runs if "no-sync" in run["peers"]]
    greatest = max(map(gain, (*DEMO.values(), measured("training-8"), *steps)))
    assert len(steps) > 5 and greatest == gain(SLOW)
    (found,) = re.findall(r"A training step is (\d+) times as fast as with DDP's dense gradients", README)
    assert found == f"{greatest:.0f}"
    assert f"and {1 / SLOW['peers']['auto']['ratio']['median']:.2f} times as fast as with its sparse ones" in README


def test_the_model_is_that_of_the_demonstration():
    shape = SLOW["settings"]["workload"]
    assert f"two tables of {shape['vocabulary']:,} rows x {shape['width']}" in README
    trace = measured("trace-8")["settings"]["workload"]
    assert (trace["units"], trace["width"]) == (shape["vocabulary"], shape["width"])
    assert f"a batch touches {trace['density']:.1%} of the first".replace("%", " %") in README
    assert f"One machine with {SLOW['machine']['cores']} cores plays all hosts" in README


def test_the_table_has_the_figures_of_the_files():
    slow, fast, alone, _card = rows()
    assert slow[0] == f"100 Mbit/s, {SLOW['settings']['ranks']} hosts" and SLOW["settings"]["rate"] == "100mbit"
    assert alone[0] == f"one machine, {ALONE['settings']['ranks']} processes" and not ALONE["settings"]["rate"]
    for row, run in ((slow, SLOW), (alone, ALONE)):
        took, sparse, dense = (milliseconds(run, peer) for peer in ("auto", "ddp-sparse", "ddp-dense"))
        assert row[2:] == [f"{took:.0f} ms", f"{sparse:.0f} ms sparse, {dense:,.0f} ms dense", "`make demo`"]
    found = fast_networks.PART.kept()
    taken = {row["peer"]: row["ms"] for row in found["rows"] if (row["ranks"], row["rate"]) == (8, "1gbit")}
    torch = taken.pop("torch-coo")
    assert fast[0] == "1 Gbit/s, 8 hosts" and found["cores"] == SLOW["machine"]["cores"]
    assert fast[2:4] == [f"{min(taken.values()):.1f} ms", f"{torch:.1f} ms sparse"]
    assert fast[4] == f"`python -m {fast_networks.__name__}`"


def test_the_workload_of_the_fast_network_is_the_one_that_its_page_names():
    page = fast_networks.PART.page.read_text(encoding="utf-8").partition(fast_networks.PART.begin)[0]
    assert "rows at 2 % of 200,000 x 64" in page
    assert rows()[1][1] == "one sum: 200,000 rows x 64, of which each rank holds 2 %"


def test_the_card_is_that_of_its_file():
    found = measured("gpu/calls")
    (call,) = (each["call"] for each in found["measured"] if each["workload"] == "rows, 2,000,000 x 128, 1 %")
    card = rows()[3]
    assert "H100" in card[0] and "H100" in found["machine"]
    share = "2,000,000 rows x 128, of which each rank holds 1 %"
    assert card[1] == f"one rank's share of a sum among {found['ranks']}: {share}"
    assert card[2:] == [f"{call:.2f} ms", "not measured", "`python -m benchmarks.gpu_call`"]


def test_the_schemes_are_counted():
    names = [scheme["name"] for scheme in shipped()]
    assert f"[{len(names)} schemes](docs/reference/schemes.md)" in README and all(locate(name) for name in names)


def test_the_picture_is_that_of_the_text(assert_golden: Callable[[str, str], None], tmp_path: Path):
    (text,) = re.findall(r"```zen\n(.*?)```", README, re.DOTALL)
    (tmp_path / "owners.zen").write_text(text, encoding="utf-8")
    picture = draw_file(str(tmp_path / "owners.zen"), 4).svg()
    assert_golden("../../docs/images/owners.svg", re.sub(r"\n[^<\n]*\.zen[^<\n]*</title>", "</title>", picture))
    assert len(text.splitlines()) == 20


def test_what_it_needs_is_what_the_package_declares():
    low, below = re.findall(r'requires-python = ">=(3\.\d+),<3\.(\d+)"', PROJECT)[0]
    assert f"Python {low} to 3.{int(below) - 1}" in README
    (torch,) = re.findall(r'"torch>=([\d.]+)', PROJECT)
    assert f"PyTorch {torch}" in README


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README) + re.findall(r'src="([^"]+)"', README)
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []
