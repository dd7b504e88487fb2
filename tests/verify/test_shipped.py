"""Proofs of the shipped schemes for every number of ranks they allow, and claims of their texts."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zenc
from tests.support.executor import assert_plays
from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, plan_with
from tests.support.refusals import refusals
from tests.support.shipped import ALL, LOSSY, plan_of_shipped
from zenc.errors import Diagnostic, Source, Span, VerificationError
from zenc.language.parse import parse_expression
from zenc.plan.expressions import condition, scope_of
from zenc.plan.ir import VALUE_KINDS, PhaseKind
from zenc.plan.requirements import allowed
from zenc.plan.unroll import expand
from zenc.verify.proof import UNPINNED_SIZES, verify, verify_all
from zenc.verify.survey import fitting, survey

SIZES = (*range(1, 17), 32, 64)
MOST_BYTES = 1_000_000
"""Size of an artifact for 1,024 ranks."""


@pytest.mark.parametrize("name", ALL)
def test_it_is_proved_for_every_size_it_allows(name):
    sizes = allowed(plan_of_shipped(name), SIZES)
    assert len(sizes) >= 4 and 64 in sizes
    for proof in verify_all(plan_of_shipped(name), sizes):
        assert len(proof.owners) == proof.parts


@pytest.mark.parametrize("name", ALL)
def test_another_executor_agrees(name):
    plan = plan_of_shipped(name)
    sizes = allowed(plan, range(1, 10))
    assert sizes
    for size in sizes:
        assert_plays(plan, expand(plan, size))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if turn % 36 else []) for turn, name in enumerate(ALL)]
)
def test_1024_ranks_compile_to_little(name):
    """The benchmark ``benchmarks/startup.py --sizes`` measures how long it takes."""
    assert sum(map(len, zenc.compile(name, ranks=1024).files().values())) < MOST_BYTES


ANY = ("agsparse", "balanced", "dense_halving_doubling", "dense_ring", "double_binary_tree",
       "hierarchical_centralization", "omnireduce", "sparcml", "sparcml_split", "sparse_ps",
       "sparse_then_dense", *LOSSY)  # fmt: skip


@pytest.mark.parametrize("name", ANY)
def test_it_runs_among_any_number_of_ranks(name):
    assert allowed(plan_of_shipped(name), range(1, 200)) == list(range(1, 200))


# Each scheme's own shape ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "d2", "d3"), [(8, 2, 1), (8, 1, 1), (12, 3, 2), (64, 4, 2), (30, 3, 5), (16, 4, 2)])
def test_kylix_talks_along_the_axes(size, d2, d3):
    plan = plan_of_shipped("kylix", d2=d2, d3=d3)
    rounds, _ = verify(plan, size)
    d1 = size // d2 // d3
    degrees = [degree for degree in (d1, d2, d3) if degree > 1]
    ((push,), (pull,)) = (rounds.of(kind) for kind in VALUE_KINDS)
    for round_, degree in [*zip(push, degrees, strict=True), *zip(pull, degrees[::-1], strict=True)]:
        assert (np.bincount(round_.src) == degree - 1).all()
    points = np.stack(np.unravel_index(np.arange(size), (d1, d2, d3)))
    for _, _, round_ in rounds:
        assert ((points[:, round_.src] != points[:, round_.dst]).sum(axis=0) == 1).all()


@pytest.mark.parametrize(("size", "columns"), [(12, 4), (12, 3), (16, 4), (6, 6), (6, 1), (3, 8), (15, 5)])
def test_a_torus_talks_to_its_neighbours(size, columns):
    rounds, _ = verify(plan_of_shipped("torus2d", columns=columns), size)
    width = min(columns, size)
    rows = size // width
    ((push,), (pull,)) = (rounds.of(kind) for kind in VALUE_KINDS)
    assert len(push) == len(pull) == width + rows - 2
    for number, round_ in enumerate(push):
        (row, column), (to_row, to_column) = divmod(round_.src, width), divmod(round_.dst, width)
        along_rows = number < width - 1
        assert (to_row == (row if along_rows else (row + 1) % rows)).all()
        assert (to_column == ((column + 1) % width if along_rows else column)).all()


@pytest.mark.parametrize("size", range(1, 34))
@pytest.mark.parametrize("chunks", [1, 4])
def test_each_rank_is_inner_in_one_tree_at_most(size, chunks):
    """Two trees over all ranks: one parent each but for the root, two children at most, and heights that halve."""
    rounds, proof = verify(plan_of_shipped("double_binary_tree", chunks=chunks), size)
    above = [{}, {}]
    for round_ in rounds.of(PhaseKind.PUSH)[0]:
        for src, dst, first, last in zip(round_.src, round_.dst, round_.first, round_.last, strict=True):
            tree = int(first >= size // 2)
            assert (last < size // 2) == (tree == 0), "a tree carries its own half"
            assert above[tree].setdefault(int(src), int(dst)) == dst
    inner = [set(parents.values()) for parents in above]
    assert not inner[0] & inner[1]
    for tree, parents in enumerate(above):
        assert len(parents) == (size - 1 if rounds.parts > 1 else 0), "one rank is the root, and all others send"
        assert all(list(parents.values()).count(rank) <= 2 for rank in inner[tree])
    assert len(set(proof.owners)) == min(size, 2)
    ((push,), (pull,)) = (rounds.of(kind) for kind in VALUE_KINDS)
    assert len(push) == len(pull) <= max(0, size.bit_length() - 1 + chunks - 1)


@pytest.mark.parametrize("size", [3, 5, 6, 7, 9, 12, 24, 33, 48])
def test_rabenseifner_folds_what_is_beyond_a_power_of_two(size):
    """Each way takes log2 steps, and one to fold or unfold; ranks that take others in carry at most 4/3 more."""
    rounds, _ = verify(plan_of_shipped("dense_halving_doubling"), size)
    for phase, end in ((rounds.of(PhaseKind.PUSH)[0], "dst"), (rounds.of(PhaseKind.PULL)[0], "src")):
        assert len(phase) == size.bit_length() - 1 + 2
        carried = np.zeros(size)
        for round_ in phase:
            np.add.at(carried, getattr(round_, end), (round_.last - round_.first + 1) / size)
        assert 0 < carried.max() - (size - 1) / size < 4 / 3


SIX = "step { for d in 1 .. 5 { send part (rank + d) mod 6 to (rank + d) mod 6 } }"
SIX_PULL = "step { for d in 1 .. 5 { send part rank to (rank + d) mod 6 } }"
PAIRS = "for s in 0 .. log2(size) - 1 { step { send all to rank ^ (1 << s) } }"


def refused(push: str, pull: str, **more: str) -> Diagnostic:
    return refusals(VerificationError, verify_all, plan_with(push, pull, **more))[0]


def test_a_scheme_for_six_ranks_is_told_at_two_and_what_to_require() -> None:
    found = refused(SIX, SIX_PULL)
    assert found.notes[:2] == ("in the push, among 2 ranks", "of 1 to 16 ranks it is right for 6")
    assert found.help is not None and 'require size == 6 "made for 6 ranks"' in found.help


def test_with_the_advice_it_is_proved() -> None:
    advice = re.search(r"require .*", refused(SIX, SIX_PULL).help or "")
    assert advice
    proofs = verify_all(plan_with(f"{advice[0]}\n{SIX}", f"{advice[0]}\n{SIX_PULL}"))
    assert [proof.size for proof in proofs] == [6]


def test_powers_of_two_are_told_as_such() -> None:
    found = refused(PAIRS, "", parts="partition: centralization")
    assert "among 3 ranks" in found.notes[0] and "1, 2, 4, 8 and 16" in found.notes[1]
    assert found.help is not None and "require size & (size - 1) == 0 " in found.help


def test_one_rank_is_shown_where_no_other_fails() -> None:
    found = refused(f"{DIRECT_PUSH}\nstep {{ send part 0 to 1 where size == 1 }}", DIRECT_PULL)
    assert "for 1 rank alone" in found.notes[0] and "right for 2 to 16" in found.notes[1]


def test_where_nothing_is_right_it_is_shown_at_two_ranks() -> None:
    found = refused("", "")
    note = "it is wrong for each of 1 to 16 ranks; if it is for more, check it with --ranks"
    assert found.notes[1:] == ("among 2 ranks", note)
    assert "sent from there to no rank in the push" in found.notes[0]


def test_the_survey_ends_where_a_schedule_is_too_long() -> None:
    asked: list[int] = []

    def prove(size: int) -> int:
        asked.append(size)
        raise VerificationError(Diagnostic("schedule-too-long", "long", Span(Source("t", "x"), 0, 1)))

    with pytest.raises(VerificationError):
        survey(UNPINNED_SIZES, prove)
    assert asked == [1]


@given(st.sets(st.sampled_from(UNPINNED_SIZES), min_size=1))
def test_a_condition_holds_for_those_sizes_and_no_others(right: set[int]) -> None:
    found = fitting(sorted(right), UNPINNED_SIZES)
    if found is not None:
        tree = parse_expression(found.text)
        assert {n for n in UNPINNED_SIZES if condition(tree, scope_of(n, n, False)).all()} == right
    else:
        assert len(right) > 6


@pytest.mark.parametrize(
    ("right", "text"),
    [
        ([6], "size == 6"), (range(2, 17), "size > 1"), (range(1, 5), "size < 5"),
        ([1, 2, 4, 8, 16], "size & (size - 1) == 0"), ([2, 4, 8, 16], "size > 1 and size & (size - 1) == 0"),
        (range(2, 17, 2), "size mod 2 == 0"), (range(1, 17, 2), "size mod 2 == 1"),
        (range(3, 9), "size > 2 and size < 9"), ([2, 6, 7], "size == 2 or size == 6 or size == 7"),
        ([n for n in UNPINNED_SIZES if n not in (5, 11)], "size != 5 and size != 11"),
        ([1, 3, 4, 6, 7, 8, 12, 13], None),
    ],
)  # fmt: skip
def test_the_simplest_condition_is_found(right: list[int], text: str | None) -> None:
    found = fitting(right, UNPINNED_SIZES)
    assert (found and found.text) == text
