"""The plans of all shipped schemes, as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.shipped import ALL
from zenc.api import compile


@pytest.mark.one_in(1)
@pytest.mark.parametrize("scheme", ALL)
def test_plan(scheme: str, assert_golden: Callable[[str, str], None]) -> None:
    assert_golden(f"{scheme}.plan.json", compile(scheme).plan.text())
