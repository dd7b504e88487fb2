"""The README says what is so: its commands are those of the program, and its numbers those that were measured."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tests.docs.pages import ROOT
from zenc.cli import app
from zenc.language.files import locate
from zenc.scheme.library import shipped

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MEASURED = ROOT / "docs" / "benchmarks"


def verbs(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Name -> command, of all that do something."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from verbs(below, f"{name} {word}".strip())


VERBS = dict(verbs(get_command(app)))
LINES = re.findall(r"^zenc .*?(?=   ?\S.*$)", README, re.MULTILINE)


def named(words: list[str]) -> str:
    """The verb that a command line names."""
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


def point(name: str) -> Any:
    return json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))


def test_numbers_of_the_words_are_measured():
    training = point("training-8")["peers"]["ddp-sparse"]["ratio"]["median"]
    assert f"a training step is {training:.2f} times as fast" in README
    slow = point("demo/hosts-4")["networks"]["100 Mbit/s"]["peers"]
    took, base = (f"{slow[name]['seconds']['median'] * 1e3:.0f} ms" for name in ("auto", "ddp-sparse"))
    times = f"{1 / slow['auto']['ratio']['median']:.2f} times as fast"
    assert f"took {took} with zenc and {base} with DDP's own sparse gradients: {times}" in " ".join(README.split())
    page = (ROOT / "benchmarks" / "reports" / "benchmarks.md").read_text(encoding="utf-8")
    assert re.search(rf"zenc, auto .*│ +{took[:-3]} │  {times[:4]} │", page)
    names = [scheme["name"] for scheme in shipped()]
    assert f"[{len(names)} schemes](docs/reference/schemes.md)" in README and all(locate(name) for name in names)


def test_what_it_needs_is_what_the_package_declares():
    low, below = re.findall(r'requires-python = ">=(3\.\d+),<3\.(\d+)"', PROJECT)[0]
    assert f"Python {low} to 3.{int(below) - 1}" in README
    (torch,) = re.findall(r'"torch>=([\d.]+)', PROJECT)
    assert f"PyTorch {torch}" in README


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []
    assert Path(ROOT, "docs/benchmarks/scale.svg").exists()
