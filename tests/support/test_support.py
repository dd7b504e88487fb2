"""Helpers of tests: faults are found, and inputs drawn again by their seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import same_bits, same_units, wrong_sums
from tests.support.fuzz import fuzzed


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


ONE = torch.tensor([1.0, 2.0, 0.0])


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (ONE * 2, ""),
        (torch.tensor([2.0, 4.5, 0.0]), "off by 0.5"),
        (torch.tensor([2.0, torch.nan, 0.0]), "finite elsewhere"),
        ((ONE * 2).double(), "another kind"),
        ((ONE * 2).to_sparse(), "another kind"),
    ],
)
def test_wrong_sums_are_found(result: torch.Tensor, fault: str) -> None:
    found = wrong_sums([result], [ONE, ONE])
    assert len(found) == bool(fault) and all(fault in each for each in found)


def test_ranks_that_differ_in_a_bit_are_found() -> None:
    zero = ONE.clone()
    zero[2] = -0.0
    assert wrong_sums([ONE, zero], [ONE]) == ["the ranks hold other bits"]
    assert same_bits([ONE, ONE.clone()]) and not same_bits([ONE, zero]) and not same_bits([ONE, ONE[:2]])


def test_units_that_are_dropped_or_made_up_are_found() -> None:
    held = ONE.to_sparse()
    assert same_units([held], [held, held])
    assert not same_units([torch.tensor([1.0, 0.0, 0.0]).to_sparse()], [held])
    assert not same_units([torch.ones(3).to_sparse()], [held])
