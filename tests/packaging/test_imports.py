"""Light modules stay light: torch and its like are imported only by what needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
