"""Wheels by their hashes, the components of an installed zenc, and light modules that import no torch."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

import pytest
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


HEAVY = ("torch", "cupy", "matplotlib", "numpy", "networkx", "lark", "jinja2")
HELP = "import sys; sys.argv = ['zenc', '--help']\nfrom zenc.cli import main\ntry: main()\nexcept SystemExit: pass"
VERBS = """
import sys
from zenc.cli import main
_, file, *verbs = sys.argv
for verb in verbs:
    sys.argv = ["zenc", verb, file]
    try: main()
    except SystemExit as end: print("status", verb, end.code, flush=True)
"""
SHOWN = f"\nimport sys; print([name for name in {HEAVY!r} if name in sys.modules])"


def run(program: str, *arguments: str) -> list[str]:
    """Return the lines that ``program`` prints; the last one lists the heavy modules that it has imported."""
    command = [sys.executable, "-c", program + SHOWN, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("program", ["import zenc", HELP, "import zenc; dir(zenc)"])
def test_heavy_modules_stay_out(program: str) -> None:
    assert run(program)[-1] == "[]"


def test_a_syntax_error_needs_nothing_heavy(tmp_path: Path) -> None:
    """Proofs, drawings and compilers are imported after the text has parsed, so that syntax errors come at once."""
    file = tmp_path / "bad.zen"
    file.write_text("scheme a { communication: }", encoding="utf-8")
    verbs = ["check", "compile", "explain", "draw"]
    shown = run(VERBS, str(file), *verbs)
    assert [line for line in shown if line.startswith("status ")] == [f"status {verb} 1" for verb in verbs]
    assert sum("error[syntax]" in line for line in shown) == 4 and shown[-1] == "[]"


@pytest.mark.parametrize("call", ["zenc.compile_text(TEXT)", "zenc.check(sys.argv[1])"])
def test_nor_does_it_in_python(tmp_path: Path, call: str) -> None:
    file = tmp_path / "bad.zen"
    file.write_text("scheme a { communication: }", encoding="utf-8")
    program = f"import sys, zenc\nTEXT = open(sys.argv[1]).read()\ntry: {call}\n"
    shown = run(program + "except zenc.SchemeSyntaxError: print('refused')", str(file))
    assert shown[-2:] == ["refused", "[]"]


LOADED = """
import sys, torch.distributed as dist, zenc
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
own = lambda: {name for name in sys.modules if name.split(".")[0] == "zenc"}
zenc.compile(sys.argv[1])
compiled = own()
zenc.load(sys.argv[1])
print(*sorted(own() - compiled))
dist.destroy_process_group()
"""
MOST_LOADED = 60
"""Modules of zenc that loading a lossless scheme on CPUs imports, beyond those that compile it."""
NOT_IN_A_PLAN = ("announced", "autoselect", "lossy.", "gpu.", "profiler", "rebuilding")


def test_a_scheme_is_loaded_with_what_it_has() -> None:
    """Choices, losses, announcements and GPUs are imported only by schemes and calls that need them."""
    runtime = "zenc.runtime."
    loaded = run(LOADED, "balanced")[-2].split()
    assert len(loaded) <= MOST_LOADED
    assert {name.split(".")[1] for name in loaded}.isdisjoint({"select", "simulator", "gradients", "tables"})
    others = {name for name in loaded if name.removeprefix(runtime).startswith(NOT_IN_A_PLAN)}
    assert others == {runtime + "lossy.residual_store", runtime + "gpu.capacity"}, "names, and an argument"


def test_public_names_exist() -> None:
    import zenc

    missing = [name for name in zenc.__all__ if not hasattr(zenc, name)]
    assert missing == []


def test_unknown_names_are_attribute_errors() -> None:
    import zenc

    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = zenc.nothing_of_the_kind
