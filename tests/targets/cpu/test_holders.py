"""Owners among holders, and the kernels that use them, against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.holder_bytes import bound, busiest, zipf_holders
from zenc.errors import SynchronisationError
from zenc.runtime.cpu.geometry import Geometry
from zenc.runtime.cpu.ownership import HolderKernels
from zenc.wire.partitioning import dealt, owners_of


@pytest.fixture(scope="session")
def holding(kernels_of) -> HolderKernels:
    return HolderKernels(kernels_of("holders").path)


def table(arrays: list[np.ndarray]) -> np.ndarray:
    """Return the addresses of arrays, as kernels want them."""
    return np.array([array.ctypes.data if array.size else 0 for array in arrays], np.int64)


class Agreement:
    """Owners of the units in ``held`` [ranks, units], chosen by the kernel."""

    def __init__(self, kernels: HolderKernels, at, held: np.ndarray) -> None:
        self.kernels, self.held = kernels, held
        self.ranks, self.units = held.shape
        self.bitmaps = [at.bitmap_of(np.flatnonzero(mine), self.units) for mine in held]
        self.any = at.bitmap_of(np.flatnonzero(held.any(0)), self.units)
        self.words = len(self.any)
        self.present = np.flatnonzero(held.any(0))
        self.owners = np.full(len(self.present), 0xFFFF, np.uint16)
        self.held_counts = np.full((self.ranks, self.ranks), 7, np.uint64)
        where = table(self.bitmaps)
        self.digest = kernels.choose_owners(
            self.ranks, at.address(where), self.words, at.address(self.owners), at.address(self.held_counts)
        )
        self.counts = self.held_counts.diagonal()

    def owned(self, part: int) -> np.ndarray:
        """Return the units of a part, in the order of their slots."""
        return self.present[self.owners == part]


numbers_of_ranks = st.integers(1, 9) | st.sampled_from((16, 63, 64, 65, 130))
held_sets = st.tuples(numbers_of_ranks, st.integers(1, 300), st.floats(0, 1), st.integers(0, 2**32)).map(
    lambda drawn: np.random.default_rng(drawn[3]).random(drawn[:2]) < drawn[2]
)


@settings(max_examples=tried(200), deadline=None)
@given(held_sets)
def test_every_unit_that_is_held_has_one_owner_who_holds_it(holding, at, held):
    agreed = Agreement(holding, at, held)
    assert held[agreed.owners, agreed.present].all()
    assert np.array_equal(agreed.counts, np.bincount(agreed.owners, minlength=agreed.ranks))
    assert Agreement(holding, at, held.copy()).digest == agreed.digest


@settings(max_examples=tried(200), deadline=None)
@given(held_sets)
def test_predictions_choose_the_same_owners(holding, at, held):
    agreed = Agreement(holding, at, held)
    units, owners = owners_of([np.flatnonzero(mine) for mine in held])
    assert np.array_equal(units, agreed.present) and np.array_equal(owners, agreed.owners)


def test_predictions_choose_the_same_owners_of_many_units(holding, at):
    held = zipf_holders(16)
    agreed = Agreement(holding, at, held)
    assert np.array_equal(owners_of([np.flatnonzero(mine) for mine in held])[1], agreed.owners)


def test_ranks_that_see_other_sets_have_another_digest(holding, at):
    rng = np.random.default_rng(1)
    held = rng.random((4, 500)) < 0.1
    digests = {Agreement(holding, at, held).digest}
    for trial in range(50):
        other = held.copy()
        alone = np.flatnonzero(other.sum(0) == 1)
        other[:, rng.choice(alone)] ^= np.arange(4) < 2 + trial % 2  # somebody else holds it too, or nobody
        digests.add(Agreement(holding, at, other).digest)
    assert len(digests) > 25


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_no_rank_sends_or_receives_more_than_the_bound_allows(holding, at, ranks):
    """The busiest rank's messages of one row count in both directions; announcing adds 0.4 to 0.7 %."""
    held = zipf_holders(ranks)
    agreed = Agreement(holding, at, held)
    owners = np.zeros(held.shape[1], np.int64)
    owners[agreed.present] = agreed.owners
    assert 1.0 <= busiest(held, owners) / bound(held) < 1.002


@pytest.mark.parametrize("ranks, expected", [(2, 1.374), (4, 1.211), (8, 1.136), (16, 1.092)])
def test_balanced_by_permutation_sends_more(permuting, at, ranks, expected):
    """An owner need not hold what it sums, so a row that one rank has travels once more; the mean of eight draws."""
    tensors = at.Tensors(permuting, Geometry(200_000, 64, ranks), at.DTYPES[0])
    owners = tensors.slots(np.arange(200_000)) // tensors.geometry.part_slots
    draws = [zipf_holders(ranks, seed=seed) for seed in range(8)]
    ratios = [busiest(held, owners) / bound(held) for held in draws]
    assert np.mean(ratios) == pytest.approx(expected, abs=0.015), ratios


def test_unequal_and_structured_sets_stay_near_what_is_possible(holding, at):
    """Ranks hold everything, share in pairs, or one holds most: the busiest sends little more than it must.

    A rank of a pair that shares nothing with others may own more, by the units that are chosen together.
    """
    everyone = np.ones((8, 1000), bool)
    pairs = np.zeros((8, 20_000), bool)
    for rank in range(8):
        pairs[rank, rank // 2 * 5000 : rank // 2 * 5000 + 5000] = True
    for held in (everyone, pairs):
        agreed = Agreement(holding, at, held)
        owners = np.zeros(held.shape[1], np.int64)
        owners[agreed.present] = agreed.owners
        assert busiest(held, owners) / bound(held) < 1.01
    two = Agreement(holding, at, np.ones((2, 1001), bool))
    assert sorted(two.counts.tolist()) == [500, 501]


@settings(max_examples=tried(100), deadline=None)
@given(held_sets, st.integers(0, 2**32))
def test_parts_know_the_slots_of_each_rank(holding, at, held, seed):
    agreed = Agreement(holding, at, held)
    ranks, wanted = agreed.ranks, np.random.default_rng(seed).random((agreed.ranks, agreed.ranks)) < 0.7
    outs = [[np.zeros(-(-int(count) // 64) * wanted[k, p], np.uint64) for p, count in enumerate(agreed.counts)]
            for k in range(ranks)]  # fmt: skip
    where, bitmaps = table([out for row in outs for out in row]), table(agreed.bitmaps)
    holding.mark_parts(ranks, at.address(bitmaps), agreed.words, at.address(agreed.owners), at.address(where))
    for rank in range(ranks):
        for part in range(ranks):
            slots = np.flatnonzero(held[rank, agreed.owned(part)])
            assert agreed.held_counts[rank, part] == len(slots)
            if wanted[rank, part]:
                assert np.array_equal(at.occupied(outs[rank][part]), slots)


@settings(max_examples=tried(100), deadline=None)
@given(held_sets, st.sampled_from([2, 4, 6, 8, 12, 256, 4000]), st.integers(0, 2**32))
def test_rows_are_split_and_joined(holding, at, held, row_bytes, seed):
    rng = np.random.default_rng(seed)
    agreed = Agreement(holding, at, held)
    rank = int(rng.integers(agreed.ranks))
    tensor = rng.integers(1, 256, (agreed.units, row_bytes), np.uint8)
    mine = np.ascontiguousarray(tensor[held[rank]])
    own = [np.full((int(held[rank, agreed.owned(p)].sum()) + 1, row_bytes), 0, np.uint8) for p in range(agreed.ranks)]
    outs = table(own)
    fixed = (at.address(agreed.owners), agreed.ranks)
    holding.split_rows(
        at.address(agreed.any), at.address(agreed.bitmaps[rank]), agreed.words, *fixed, at.address(mine), row_bytes,
        at.address(outs),
    )  # fmt: skip
    for part in range(agreed.ranks):
        units = agreed.owned(part)
        assert np.array_equal(own[part][:-1], tensor[units[held[rank, units]]])
        assert not own[part][-1].any()

    whole = [np.ascontiguousarray(tensor[agreed.owned(part)]) for part in range(agreed.ranks)]
    parts, count = table(whole), len(agreed.present)
    ids, rows = np.full(count + 1, -1, np.int64), np.zeros((count + 1, row_bytes), np.uint8)
    numbers = [np.full(len(part) + 1, 7, np.uint64) for part in whole]
    lists = table(numbers)
    listed = holding.list_units(at.address(agreed.any), agreed.words, *fixed, at.address(ids), at.address(lists))
    for of_part, values in zip(numbers, whole, strict=True):
        assert of_part[-1] == 7
        holding.place_rows(at.address(of_part), len(values), at.address(values), row_bytes, at.address(rows))
    assert listed == count and ids[-1] == -1 and not rows[-1].any()
    assert np.array_equal(ids[:-1], agreed.present) and np.array_equal(rows[:-1], tensor[agreed.present])

    dense = np.full_like(tensor, 0xA5)
    at_any = at.address(agreed.any)
    holding.join_dense(at_any, agreed.units, *fixed, at.address(parts), row_bytes, at.address(dense))
    assert np.array_equal(dense, np.where(held.any(0)[:, None], tensor, 0xA5))


@settings(max_examples=tried(100), deadline=None)
@given(held_sets)
def test_a_directory_is_dealt_and_joined(holding, at, held):
    """Any owners receive the units that they were named for, and one rank's units come to their slots."""
    (ranks, units), by = held.shape, dealt(held.shape[1], len(held))
    words, present = -(-int(by.sizes[0]) // 64), np.flatnonzero(held.any(0))
    own, own_any = (at.bitmap_of(np.flatnonzero(of), units) for of in (held[0], held.any(0)))
    parts, everyone = np.zeros((2, ranks, words), np.uint64)
    counts, outs = np.zeros(ranks, np.uint64), table(list(parts))
    holding.deal_units(at.address(own), len(own), ranks, at.address(outs), at.address(counts))
    assert np.array_equal(counts, np.bincount(by.part[held[0]], minlength=ranks))
    for part in range(ranks):
        assert np.array_equal(at.occupied(parts[part]), np.sort(by.slot[held[0] & (by.part == part)]))

    named = np.arange(len(present), dtype=np.uint16) % ranks
    outs = table(list(everyone))
    holding.deal_units(at.address(own_any), len(own), ranks, at.address(outs), at.address(counts))
    of_parts = [named[by.part[present] == part] for part in range(ranks)]
    lists = table(of_parts)
    found, owners, slots = np.ones_like(own), np.full(len(present), 0xFFFF, np.uint16), np.ones(ranks, np.uint64)
    told = at.address(found), at.address(owners), at.address(slots)
    joined, _ = holding.join_directory(units, ranks, at.address(outs), at.address(lists), *told)
    assert joined == len(present) and np.array_equal(found, own_any) and np.array_equal(owners, named)
    assert np.array_equal(slots, np.bincount(named, minlength=ranks))

    marked = np.zeros((ranks, len(own) + 1), np.uint64)
    outs = table(list(marked))
    holding.mark_own(told[0], at.address(own), len(own), told[1], ranks, at.address(outs), at.address(counts))
    for part in range(ranks):
        mine = np.flatnonzero(held[0, present[named == part]])
        assert np.array_equal(at.occupied(marked[part]), mine) and counts[part] == len(mine)


@pytest.mark.parametrize("bits, owner", [(0b111, 0), (0b011, 3)])
def test_a_directory_that_names_no_unit_or_no_rank_is_refused(holding, at, bits, owner):
    """The 7 units are in 3 parts, two of which have no unit in their third slot."""
    bitmaps, owners = [np.full(1, bits, np.uint64) for _ in range(3)], [np.full(3, owner, np.uint16) for _ in range(3)]
    found, named, slots = np.zeros(1, np.uint64), np.zeros(9, np.uint16), np.zeros(3, np.uint64)
    told = at.address(found), at.address(named), at.address(slots)
    tables = table(bitmaps), table(owners)
    with pytest.raises(SynchronisationError, match=r"error\[corrupt-segment\]"):
        holding.join_directory(7, 3, *(at.address(each) for each in tables), *told)
