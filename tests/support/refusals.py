"""Diagnostics of what must be refused."""

from collections.abc import Callable
from typing import Any

import pytest

from zenc.errors import Diagnostic, ZencError


def refusals(
    error: type[ZencError] | tuple[type[ZencError], ...], call: Callable[..., Any], *args: Any, **options: Any
) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of the ``error`` that the call must raise."""
    with pytest.raises(error) as caught:
        call(*args, **options)
    return caught.value.diagnostics
