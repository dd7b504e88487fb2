"""Expansion of segments to tensors: the bits of the CPU's kernels, for every mapping.

Each dtype has another order of threads.
"""

import numpy as np
import pytest

from tests.support.packing import partition
from tests.support.pieces import Piece, rubbish, table, words_of

SHAPES = [
    (0, 1, 2), (1, 1, 1), (1, 3, 4), (63, 1, 2), (200, 3, 7), (130, 64, 4), (40, 1000, 3), (5, 2, 9), (4097, 1, 3),
    (9001, 1, 2),
]  # fmt: skip
MAPPINGS = ["contiguous", "permutation", "permuted words", "hierarchical_hash"]


@pytest.fixture(params=MAPPINGS)
def both(request, device_of, kernels_of):
    """A mapping, its kernels for GPUs, and those for the CPU."""
    return request.param, device_of(request.param), kernels_of(request.param)


def drawn(tensors, at, density):
    """Return (the bitmap of all parts, their values, what kernels for GPUs see of them)."""
    geometry, rng = tensors.geometry, np.random.default_rng(6)
    ids = np.sort(rng.permutation(geometry.units)[: round(geometry.units * density)])
    rows = rng.integers(0, 256, (len(ids), geometry.width * np.dtype(tensors.dtype.storage).itemsize), np.uint8)
    bitmap, placed = tensors.place_units(ids, rows.view(tensors.dtype.storage))
    first, pieces = 0, []
    for part, words in enumerate(bitmap.reshape(geometry.parts, geometry.part_words)):
        slots = geometry.slots_of(part)
        piece = Piece(slots, words[: words_of(slots)].copy(), part=part).ranked(start=part)
        piece.values = placed[first : first + piece.count].copy()
        pieces.append(piece)
        first += piece.count
    return bitmap, placed, pieces


def row_bytes(tensors):
    return tensors.geometry.width * np.dtype(tensors.dtype.storage).itemsize


def cases(kernels, at, dtype):
    """Yield (tensors, bitmap, rows, pieces, where the result begins) of all shapes and densities."""
    for turn, (units, width, parts) in enumerate(SHAPES):
        tensors = at.Tensors(kernels, kernels.geometry(units, width, parts, dense=True), dtype)
        for more, density in enumerate((0.0, 0.3, 1.0)):
            yield tensors, *drawn(tensors, at, density), (turn + more) % 4


def rows_behind(tensors, shift, rows):
    """Return rubbish with ``rows`` rows in it that begin at its value number ``shift``, as a view of a bucket does."""
    width = tensors.geometry.width
    memory = tensors.values(rows + shift + 1).reshape(-1)
    return memory, memory[shift : shift + rows * width].reshape(rows, width)


def only(memory, rows, shift, expected):
    """Return whether ``rows`` in ``memory`` are as expected, and all around them is as it was."""
    around = np.delete(memory, np.s_[shift : shift + rows.size])
    return np.array_equal(rows.view(np.uint8), expected.view(np.uint8)) and bool((around.view(np.uint8) == 0xA5).all())


def expand(device, tensors, pieces, keeps, out, seed):
    arguments, size = [partition(tensors.geometry), table(pieces)], row_bytes(tensors)
    if tensors.geometry.width == 1:
        device.launch(f"zenc_expand_values_{8 * size}", (2, 1), [*arguments, None, keeps, out], seed=seed)
    else:
        device.launch("zenc_expand_dense", (2, 1), [*arguments, size, None, keeps, out], seed=seed)


def test_dense_tensors_are_those_of_the_cpu(both, at, dtype):
    _, device, kernels = both
    for tensors, bitmap, placed, pieces, shift in cases(kernels, at, dtype):
        memory, out = rows_behind(tensors, shift, tensors.geometry.units)
        expand(device, tensors, pieces, 0, out, at.DTYPES.index(dtype))
        assert only(memory, out, shift, tensors.expand_dense(bitmap, placed))


def test_of_a_dense_tensor_that_is_kept_only_what_is_there_is_written(both, at, dtype):
    """Zeros (+0) are left alone, unless they lie in a sector of 32 bytes with something else."""
    _, device, kernels = both
    for tensors, bitmap, placed, pieces, shift in cases(kernels, at, dtype):
        memory, out = rows_behind(tensors, shift, tensors.geometry.units)
        expand(device, tensors, pieces, 1, out, at.DTYPES.index(dtype))
        expected = tensors.expand_dense(bitmap, placed)
        ids = tensors.expand_units(bitmap, placed)[0]
        absent = np.setdiff1d(np.arange(tensors.geometry.units), ids)
        rows = out.view(np.uint8)[absent]
        left = (rows == 0xA5).all(1)
        assert ((rows == 0).all(1) | left).all()
        assert len(placed) > 0 or left.all()
        assert left.all() or tensors.geometry.width == 1
        expected[absent] = out[absent]
        assert only(memory, out, shift, expected)


def found_units(device, tensors, grid, pieces):
    """Return the occupied units, as a bitmap with its ranks. Contiguous parts do without."""
    found = Piece(tensors.geometry.units, np.zeros(words_of(tensors.geometry.units), np.uint64))
    device.launch("zenc_mark_found", grid, [partition(tensors.geometry), table(pieces), table([found])], seed=1)
    found = found.ranked(start=5)
    assert found.count == sum(piece.count for piece in pieces)
    return found


def test_coalesced_lists_are_those_of_the_cpu(both, at, dtype):
    mapping, device, kernels = both
    for tensors, bitmap, placed, pieces, shift in cases(kernels, at, dtype):
        grid = (2, max(len(pieces) - 1, 1))
        found = None if mapping == "contiguous" else table([found_units(device, tensors, grid, pieces)])
        ids = rubbish(len(placed) + 1).view(np.int64)
        memory, out = rows_behind(tensors, shift, len(placed))
        arguments = [partition(tensors.geometry), table(pieces), found, row_bytes(tensors), ids, out]
        device.launch("zenc_expand_units", grid, arguments, seed=at.DTYPES.index(dtype))
        expected_ids, expected = tensors.expand_units(bitmap, placed)
        assert np.array_equal(ids[:-1], expected_ids) and ids[-1] == rubbish(1).view(np.int64)[0]
        assert only(memory, out, shift, expected)
