"""Mixing matrices against plain matrices of fractions, and the periods that make the mean."""

from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from tests.support.fuzz import tried
from tests.support.refusals import refusals
from zenc.averaging.mixing import mixing_matrix, prove_period
from zenc.averaging.model import Averaging, EvenDivision, Group, Shuffled
from zenc.averaging.pipeline import AveragingReport, resolve_averaging, verify_averaging
from zenc.errors import Diagnostic, ZencError
from zenc.language.files import load_text
from zenc.language.formatter import format_text
from zenc.pipeline.request import Request


def averaging_of(divisions: str, sums: str = "dense_ring") -> Averaging:
    text = f"averaging a {{ alternate [{divisions}] sums: {sums} }}"
    return resolve_averaging(load_text(text, "a.zen"), Request())[0]


def checked(divisions: str, ranks: int | None = None, sums: str = "dense_ring") -> AveragingReport:
    return verify_averaging(averaging_of(divisions, sums), Request(ranks))


def refused(divisions: str, ranks: int | None = None, sums: str = "dense_ring") -> Diagnostic:
    return refusals(ZencError, checked, divisions, ranks, sums)[0]


@draw.composite
def periods(chosen: draw.DrawFn) -> tuple[int, list[list[Group]]]:
    """Draw the steps of a period: each is a random division of a few ranks."""
    size = chosen(draw.integers(1, 7))
    steps = []
    for _ in range(chosen(draw.integers(1, 4))):
        of = chosen(draw.lists(draw.integers(0, size - 1), min_size=size, max_size=size))
        steps.append([tuple(r for r in range(size) if of[r] == name) for name in sorted(set(of))])
    return size, steps


@given(periods())
@settings(max_examples=tried(100))
def test_products_are_those_of_matrices_of_fractions(period: tuple[int, list[list[Group]]]) -> None:
    size, steps = period
    product = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    for groups in steps:
        means = {
            rank: [sum((product[other][j] for other in group), Fraction()) / len(group) for j in range(size)]
            for group in groups
            for rank in group
        }
        product = [means[rank] for rank in range(size)]
    found = mixing_matrix(steps, size)
    assert [[found.weight(i, j) for j in range(size)] for i in range(size)] == product
    assert all(sum(row) == 1 for row in product) and all(sum(column) == 1 for column in zip(*product, strict=True))
    assert found.is_mean == all(weight == Fraction(1, size) for row in product for weight in row)
    rank, of = found.furthest
    assert found.is_mean or product[rank][of] < Fraction(1, size)


@pytest.mark.parametrize(
    ("divisions", "ranks", "sizes", "groups"),
    [
        ("rows(2), columns(2)", None, (4, 6, 8, 10, 12, 14, 16), [2, 3, 4, 5, 6, 7, 8]),
        ("rows(4), columns(4)", 16, (16,), [4]),
        ("rows(32), columns(32)", 1024, (1024,), [32]),
        ("strided(2, 1), strided(2, 2), strided(2, 4)", 8, (8,), [2]),
        ("inside node(2), across node(2) inside rack(6), across rack(6)", 12, (12,), [2, 3]),
        ("rows(2), everyone", 6, (6,), [2, 6]),
        ("groups [3, 0] [2, 1], groups [0, 1] [2, 3]", None, (4,), [2]),
        ("everyone", 1, (1,), [1]),
    ],
)
def test_periods_that_make_the_mean(
    divisions: str, ranks: int | None, sizes: tuple[int, ...], groups: list[int]
) -> None:
    found = checked(divisions, ranks)
    assert found.sizes == sizes
    assert sorted(found.groups) == groups and all(found.groups[size].sizes == (size,) for size in groups)
    assert found.to_json()["from_any_step"] is True and "begin within a period" not in found.lines("")[1]


def test_shuffled_ranks_meet_all_others_and_each_order_makes_the_mean() -> None:
    of = replace(averaging_of("rows(4), columns(4)"), ranks=Shuffled(12))
    steps = verify_averaging(of, Request(16)).proofs[0].steps
    assert len(steps) == 24 and steps[:2] == (EvenDivision(1, 4).groups(16), EvenDivision(4).groups(16))
    assert all(mixing_matrix(steps[at : at + 2], 16).is_mean for at in range(0, 24, 2))
    first, met = (
        {pair for group in chain(*groups) for pair in combinations(group, 2)} for groups in (steps[:2], steps)
    )
    assert met == set(combinations(range(16), 2)) > first
    assert of.groups(16) == steps != replace(of, ranks=Shuffled(12, 7)).groups(16)


def test_a_period_may_have_to_begin_at_its_first_step() -> None:
    found = checked("groups [0, 1] [2, 3], groups [0, 2] [1, 3], groups [0, 3] [1] [2]")
    assert found.to_json()["from_any_step"] is False and "begin within a period" in found.lines("")[1]
    steps = found.proofs[0].steps
    assert mixing_matrix(steps, 4).is_mean and not mixing_matrix(steps[1:] + steps[:1], 4).is_mean


@pytest.mark.parametrize(
    ("divisions", "ranks", "sums", "said"),
    [
        ("rows(2)", None, "dense_ring", "not-the-mean: after the 1 step of a period rank 0 has nothing of the"),
        ("rows(4), columns(4)", 6, "dense_ring", "not-the-mean: after the 2 steps of a period rank 2 has nothing of"),
        ("groups [0, 1, 2] [3], groups [0, 3] [1, 2]", None, "dense_ring", "not-the-mean: after the 2 steps of a"),
        ("groups [0, 1]", 3, "dense_ring", "bad-size: averaging 'a' lists 2 ranks, and there are 3"),
        ("rows(64), columns(64)", 8192, "dense_ring", "bad-size: a period is proved for 4,096 ranks at most"),
        ("rows(3), columns(3)", 9, "kylix", "unmet-requirement: "),
    ],
)
def test_what_is_refused_is_told_with_its_reason(divisions: str, ranks: int | None, sums: str, said: str) -> None:
    found = refused(divisions, ranks, sums)
    assert f"{found.id}: {found.message}".startswith(said)
    assert found.span is not None


CUBE = "strided(2, 1), strided(2, 2), strided(2, 4)"


def test_an_averaging_says_for_how_many_ranks_it_is_meant() -> None:
    unsaid = refused(CUBE, None)
    assert unsaid.id == "not-the-mean" and "it makes the mean among 8 ranks" in (unsaid.help or "")
    text = (
        f'averaging a(side = 2) {{ alternate [{CUBE}] require size == side * 4 "a cube of 8 ranks" sums: dense_ring }}'
    )
    averaging = resolve_averaging(load_text(text, "a.zen"), Request())[0]
    assert verify_averaging(averaging, Request()).sizes == (8,)
    (found,) = refusals(ZencError, verify_averaging, averaging, Request(16))
    assert (found.id, found.message) == ("unmet-requirement", "a cube of 8 ranks")
    assert found.help == "it holds for 8 ranks"
    assert format_text(text, "a.zen").count("require size == side * 4") == 1


def test_a_scheme_that_is_wrong_in_a_group_says_whose_group_it_is() -> None:
    found = refused("rows(3), columns(3)", 9, "kylix")
    assert "a group of averaging 'a' among 9 ranks: a.zen:1:" in found.notes[-1]


def test_the_proof_of_a_grid_takes_no_time_and_that_of_others_is_exact_beyond_64_bits() -> None:
    proof = prove_period(averaging_of("rows(64), columns(64)"), 4096)
    assert proof.group_sizes == (64,) and proof.from_any_step
    threes = ", ".join(["rows(3)"] * 41)
    assert not mixing_matrix(averaging_of(threes).groups(9), 9).is_mean
    assert mixing_matrix(averaging_of(threes + ", columns(3)").groups(9), 9).weight(8, 0) == Fraction(1, 9)
