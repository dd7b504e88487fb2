"""Properties of any input: tried on few in every run of the tests, and on many in a long one.

``pytest -m fuzz --hypothesis-profile=long`` is the long run; ``make fuzz`` says so too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

Test = TypeVar("Test", bound=Callable[..., Any])

_LONG = settings(
    max_examples=20_000,
    deadline=timedelta(minutes=1),  # no input takes a second: this is for those that hang
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def register_profiles() -> None:
    """Make ``--hypothesis-profile`` know ``long``, and ``first``, which makes no failure smaller.

    To be called before any test is imported.
    """
    settings.register_profile("long", _LONG)
    settings.register_profile("first", phases=[Phase.explicit, Phase.generate])


def fuzzed(examples: int) -> Callable[[Test], Test]:
    """Mark a test as ``fuzz``, and try it on ``examples`` inputs; in a long run on as many as its profile says."""
    short = settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
    chosen = _LONG if settings.default == _LONG else short

    def decorate(test: Test) -> Test:
        return pytest.mark.fuzz(chosen(test))

    return decorate
