"""The seed of random inputs: a new one in each run, also in continuous integration, and printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import fuzzed, seed_of_run


def drawn(seed: int) -> list[int]:
    found: list[int] = []

    @fuzzed(5, seed)
    @given(st.integers())
    def any_number(number: int) -> None:
        found.append(number)

    any_number()
    return found


def test_inputs_are_those_of_the_seed() -> None:
    assert drawn(1) == drawn(1) != drawn(2)


def test_a_run_tells_its_seed(pytestconfig: pytest.Config) -> None:
    said = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=pytestconfig.rootpath)
    assert any(str(seed_of_run()) in str(line) for line in said)
