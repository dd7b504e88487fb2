"""The tests that need a GPU, from the source tree, with the Python and the PyTorch that are there: installs nothing.

    python3 tests/gpu/run.py [pytest's arguments]     # or: make test-gpu INSTALL=no PYTHON=python3

Needs what zenc and its tests import. What a machine without a registry lacks of that is found in ``.gpu/packages``,
which ``make gpu-packages`` fills where there is one; the folder is not tracked, and has no PyTorch.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / ".gpu" / "packages"
MODULES = ("hypothesis", "jinja2", "lark", "networkx", "numpy", "pytest", "pytest_timeout", "rich", "torch", "typer")
DEFAULT = ("tests/gpu", "tests/targets/cuda", "tests/emulator")


def main(arguments: list[str]) -> int:
    """Return pytest's exit status, or 2 if something is missing."""
    os.chdir(ROOT)
    find_packages()
    if missing := missing_modules():
        print(f"{sys.executable} has no {', '.join(missing)}", file=sys.stderr)
        print(
            f"make gpu-packages, where there is a registry, puts the pure Python ones into {PACKAGES}", file=sys.stderr
        )
        return 2
    import pytest
    import torch

    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, pytest {pytest.__version__}", flush=True)
    chosen = arguments if any(Path(word.split("::")[0]).exists() for word in arguments) else [*DEFAULT, *arguments]
    return int(pytest.main(["-m", "gpu", *chosen]))


def find_packages() -> None:
    """Let this process and its children find the source tree, and ``PACKAGES`` if a module is missing without them."""
    folders = [str(ROOT)]
    sys.path[:0] = folders
    if missing_modules():
        folders.append(str(PACKAGES))
        sys.path.append(str(PACKAGES))
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])


def missing_modules() -> list[str]:
    return [name for name in MODULES if find_spec(name) is None]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
