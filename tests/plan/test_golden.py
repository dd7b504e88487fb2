"""The plans of all shipped schemes, as people and files see them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zenc.compiler import compile
from zenc.plan.serial import plan_text
from zenc.resources import directory

SCHEMES = sorted(path.stem for path in directory("schemes").glob("*.zen") if path.stem != "patterns")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_plan(scheme: str, assert_golden: Callable[[str, str], None]) -> None:
    assert_golden(f"{scheme}.plan.json", plan_text(compile(scheme).plan))
