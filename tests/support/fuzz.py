"""Properties of any input: tried on few in every run of the tests, and on many in a long one.

``pytest -m fuzz --hypothesis-profile=long`` is the long run; ``make fuzz`` says so too. Each run has inputs of its
own, by a new seed that its first lines give; ``ZENC_FUZZ_SEED=SEED`` tries the same ones again. ``ZENC_FUZZ_INPUTS``:
how many are tried in the long run.
"""

import os
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings

Test = TypeVar("Test", bound=Callable[..., Any])

SEED_VARIABLE, INPUTS_VARIABLE = "ZENC_FUZZ_SEED", "ZENC_FUZZ_INPUTS"
QUICK = 25
_LONG = settings(
    max_examples=int(os.environ.get(INPUTS_VARIABLE, "5000")),
    derandomize=False,
    deadline=timedelta(minutes=1),  # no input takes a second: this is for those that hang
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def register_profiles() -> None:
    """Register the Hypothesis profiles ``long``, ``first``, which makes no failure smaller, and ``quick``.

    To be called before any test is imported.
    """
    settings.register_profile("long", _LONG)
    settings.register_profile("first", phases=[Phase.explicit, Phase.generate])
    settings.register_profile("quick", max_examples=QUICK, deadline=None)  # machines are busy


def tried(most: int) -> int:
    """Return ``most``, or a quarter of it where slow tests are left out."""
    return -(-most // 4) if settings.default.max_examples == QUICK else most


def seed_of_run() -> int:
    """Return this test run's seed, drawn when first asked for; processes that are started later share it."""
    return int(os.environ.setdefault(SEED_VARIABLE, str(secrets.randbits(32))))


def fuzzed(examples: int, of: int | None = None) -> Callable[[Test], Test]:
    """Make a test ``fuzz``, and try it on ``examples`` inputs, or in a long run on as many as its profile says.

    The inputs are those of the seed ``of``, or of the run's: in continuous integration too, for which Hypothesis would
    take the same ones each time.
    """
    short = settings(
        deadline=None,
        max_examples=tried(examples),
        derandomize=False,
        suppress_health_check=_LONG.suppress_health_check,
    )
    chosen = _LONG if settings.default == _LONG else short

    def decorate(test: Test) -> Test:
        return pytest.mark.fuzz(seed(seed_of_run() if of is None else of)(chosen(test)))

    return decorate
