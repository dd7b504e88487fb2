"""Plans of other synthesizers as files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from zenc.errors import Diagnostic, ZencError
from zenc.referee.open import check_plan

Found = Callable[[str], tuple[Diagnostic, ...]]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Return the mistakes of the plan in a text; empty where it is proved."""

    def judged(text: str) -> tuple[Diagnostic, ...]:
        path = tmp_path / "plan"
        path.write_text(text, encoding="utf-8")
        try:
            return check_plan(path).warnings
        except ZencError as error:
            return error.diagnostics

    return judged
