"""The supply chain: wheels by their hashes, and a list of the components of an installed zenc."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.lock import LEFT_OUT, LOCK, PYTHONS, holds, lock_text, pinned
from tests.packaging.sbom import sbom
from tests.support.forked import ROOT

ENTRY = re.compile(r"^(?P<pin>[^\s#].*?) \\\n(?P<hashes>(?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def test_the_lock_has_a_hash_of_every_wheel_that_is_pinned() -> None:
    """The lock has nothing else; after a change of constraints.txt run `make lock`."""
    text = LOCK.read_text("utf-8")
    hashes = {each["pin"]: re.findall(r"[0-9a-f]{64}", each["hashes"]) for each in ENTRY.finditer(text)}
    assert list(hashes) == [str(pin) for pin in pinned()]
    assert lock_text(hashes) == text, "it says what the command writes, for the machine that it was written on"
    assert all(len(set(of)) == len(of) for of in hashes.values())
    assert all(name in (ROOT / "constraints.txt").read_text("utf-8") for name in LEFT_OUT)


def test_each_python_has_one_version_of_each_package() -> None:
    for python in PYTHONS:
        names = [pin.name for pin in pinned() if holds(pin, python)]
        assert len(set(names)) == len(names) > 80


def url(name: str) -> str:
    return f"pkg:pypi/{name}@{quote(version(name))}"


def test_the_sbom_is_what_is_installed_all_the_way_down() -> None:
    found = sbom()
    assert json.dumps(found) == json.dumps(sbom()), "the same bytes for the same packages"
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    parts = {each["bom-ref"]: each for each in [found["metadata"]["component"], *found["components"]]}
    links = {each["ref"]: each["dependsOn"] for each in found["dependencies"]}
    assert links.keys() == parts.keys() and {part for of in links.values() for part in of} <= parts.keys()
    assert all(each["version"] == version(each["name"]) for each in parts.values())
    asked = re.search(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.M | re.S)
    assert asked is not None
    names = [Requirement(line.strip(' ",')).name for line in asked[1].splitlines()]
    assert links[url("zenc")] == sorted(map(url, names))
    assert url("markupsafe") in links[url("jinja2")]
    assert parts.keys().isdisjoint({url("pytest"), url("hypothesis"), url("ruff")}), "which are for development"


def test_what_is_pinned_has_a_license() -> None:
    own = {canonicalize_name(pin.name) for pin in pinned()}
    parts = [each for each in sbom()["components"] if canonicalize_name(each["name"]) in own]
    assert len(parts) > 10 and [each["name"] for each in parts if not each.get("licenses")] == []


def test_extras_are_part_of_it_where_they_are_asked_for() -> None:
    with_plots, without = ({each["name"] for each in sbom(extras=of)["components"]} for of in (["plots"], []))
    assert with_plots - without >= {"matplotlib", "pillow"} and without <= with_plots


def test_what_the_wheel_is_checked_with_exists() -> None:
    """``make wheel-check`` alone runs it."""
    script = (ROOT / "tests" / "packaging" / "wheel_check.sh").read_text("utf-8")
    programs, names = re.findall(r"<<'PYTHON'\n(.*?)\nPYTHON\n", script, re.DOTALL), dict[str, object]()
    for program in programs:
        exec("\n".join(line for line in program.splitlines() if re.match(r"import|from", line)), names)
    assert callable(getattr(names["library"], "load", None)) and "library.load(" in programs[0]
    assert callable(names["shipped"]) and "shipped(" in programs[1]
