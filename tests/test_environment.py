"""Settings of the environment are read in one place, and strictly."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cli.conftest import Zenc, zenc
from tests.support.sources import nodes_of
from zenc.common.environment import SETTINGS, ensure_sound, is_on, setting
from zenc.errors import ZencError

__all__ = ["zenc"]
PACKAGE = Path(__file__).resolve().parents[1] / "zenc"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_one_of_its_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in SETTINGS[name]:
        monkeypatch.setenv(name, value)
        assert setting(name) == value and is_on(name) == (value == "1")
    for unset in ("", None):
        monkeypatch.setenv(name, "") if unset == "" else monkeypatch.delenv(name)
        assert setting(name) == SETTINGS[name][0]
    ensure_sound()
    for value in ("maybe", "true", "2", " 0"):
        monkeypatch.setenv(name, value)
        with pytest.raises(ZencError, match=f"{name} is {' or '.join(SETTINGS[name])}, not '{value}'"):
            ensure_sound()


def test_no_setting_is_read_elsewhere() -> None:
    """Only variables that a rank tells of itself are read elsewhere."""
    for path in PACKAGE.rglob("*.py"):
        for node in nodes_of(path) if "os.environ" in path.read_text(encoding="utf-8") else ():
            if isinstance(node, ast.Call | ast.Subscript) and "os.environ" in ast.unparse(node):
                assert path.name == "environment.py" or not any(name in ast.unparse(node) for name in SETTINGS), path


def test_the_program_refuses_one_that_means_nothing(zenc: Zenc) -> None:
    done = zenc("list", ZENC_SHARED_MEMORY="maybe")
    assert done.returncode == 1 and "error[bad-environment]: ZENC_SHARED_MEMORY is 1 or 0, not 'maybe'" in done.stderr
