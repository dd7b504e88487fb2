"""What is light stays light: torch and its like are imported only by what needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "cupy", "matplotlib", "numpy", "networkx", "lark", "jinja2")
HELP = "import sys; sys.argv = ['zenc', '--help']\nfrom zenc.cli import main\ntry: main()\nexcept SystemExit: pass\n"


@pytest.mark.parametrize("program", ["import zenc\n", HELP, "import zenc; dir(zenc)\n"])
def test_heavy_modules_stay_out(program: str) -> None:
    shown = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program + shown], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_public_names_exist() -> None:
    import zenc

    missing = [name for name in zenc.__all__ if not hasattr(zenc, name)]
    assert missing == []


def test_unknown_names_are_attribute_errors() -> None:
    import zenc

    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = zenc.nothing_of_the_kind
