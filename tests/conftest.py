"""Fixtures that every test may use.

``assert_golden("balanced.tree.txt", text)`` compares ``text`` with the file of that name in ``tests/golden``.
``pytest --update-golden`` writes the files anew: read the diff before you commit it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files in tests/golden anew")


@pytest.fixture
def assert_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function that fails, with a diff, unless a text equals the golden file of the given name."""
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path, text = GOLDEN / name, text.rstrip("\n") + "\n"
        known = path.read_text(encoding="utf-8") if path.exists() else None
        if known == text:
            return
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if known is None:
            pytest.fail(f"there is no tests/golden/{name}: run pytest --update-golden, and read what it wrote")
        diff = difflib.unified_diff(known.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="")
        pytest.fail("\n".join(diff))

    return check
