"""Ranks, slots and sorting over many tiles, in grids that are smaller and larger than their number."""

import numpy as np
import pytest

from tests.support.packing import SCAN_TILE, SORT_TILE, Packer
from tests.support.pieces import Piece, ranks, ranks_of, rubbish


@pytest.fixture
def packer(device):
    return Packer(device, None)


@pytest.mark.parametrize(("blocks", "rows", "seed"), [(1, 5, 0), (3, 2, 1), (8, 5, 2), (2, 1, 3)])
def test_ranks_of_several_segments(packer, blocks, rows, seed):
    """Tiles wait for those before them, whichever order blocks run in."""
    rng = np.random.default_rng(5)
    packer.blocks, packer.seed = blocks, seed
    pieces = []
    for words in (0, 1, SCAN_TILE - 1, 5 * SCAN_TILE + 7, 3):
        bitmap = rng.integers(0, 1 << 64, words, np.uint64, endpoint=False)
        pieces.append(Piece(64 * words, bitmap, rubbish(ranks_of(64 * words))))
    packer.rank(pieces, rows)
    for piece in pieces:
        assert np.array_equal(piece.ranks, ranks(piece.bitmap))


def test_a_scan_of_many_tiles(packer):
    numbers = np.random.default_rng(6).integers(0, 1 << 40, 40 * SCAN_TILE + 1, np.uint64)
    expected = np.cumsum(numbers) - numbers
    packer.blocks, packer.seed = 6, 3
    packer.launch("zenc_scan", [numbers, len(numbers), np.zeros(1 + 41, np.uint64)])
    assert np.array_equal(numbers, expected)


@pytest.mark.parametrize("complete", [0, 7, 8, 38, 39])
def test_a_look_back_over_more_tiles_than_a_warp_sees(packer, complete):
    """40 tiles have published their own sums, and one of them the sum up to it; the last tile is left."""
    own, complete_sum = 1, 2
    numbers = np.random.default_rng(6).integers(0, 1 << 40, 40 * SCAN_TILE + 1, np.uint64)
    sums = numbers[:-1].reshape(40, SCAN_TILE).sum(axis=1)
    states = sums << np.uint64(2) | np.uint64(own)
    states[complete] = sums[: complete + 1].sum() << np.uint64(2) | np.uint64(complete_sum)
    work = np.array([40, *states, 0], np.uint64)
    packer.launch("zenc_scan", [numbers, len(numbers), work])
    assert numbers[-1] == sums.sum()


@pytest.mark.parametrize("n", [1, 31, SORT_TILE, 3 * SORT_TILE + 5])
@pytest.mark.parametrize(("highest", "digit"), [(3, 20), (1 << 20, 20), (1 << 20, 28)])
def test_sorting_by_a_digit_is_stable(packer, n, highest, digit):
    """Rows have bits from 20 on, and the position below."""
    rows = np.random.default_rng(7).integers(0, highest, n, np.uint64)
    keys = rows << np.uint64(20) | np.arange(n, dtype=np.uint64)
    packer.blocks = 3
    digits = keys >> np.uint64(digit) & np.uint64(255)
    assert np.array_equal(packer.sort(keys, digit), keys[np.argsort(digits, kind="stable")])


@pytest.mark.parametrize("mapping", ["contiguous", "permutation"])
@pytest.mark.parametrize("units", [1, 1000, (1 << 32) + 12345, 1 << 45])
def test_slots_of_units_are_those_of_the_cpu(permuter_of, kernels_of, at, mapping, units):
    kernels = kernels_of(mapping)
    tensors = at.Tensors(kernels, kernels.geometry(units, 1, 3), at.DTYPES[0])
    ids = np.random.default_rng(8).integers(0, units, 700)
    slots, back = tensors.slots(ids), np.empty_like(ids)
    packer, out = Packer(permuter_of(mapping), tensors), np.empty_like(ids)
    packer.launch("slots_of_units", [*packer.cut, ids, len(ids), out])
    packer.launch("units_of_slots", [*packer.cut, out, len(ids), back])
    assert np.array_equal(out, slots)
    assert np.array_equal(back, ids)
