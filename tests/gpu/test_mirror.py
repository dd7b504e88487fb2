"""Stand-ins for arrays and tables in a device's memory; on the emulator's driver."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.emulator.device import LaunchError
from tests.emulator.libraries import Libraries
from tests.gpu.device import GpuDevice
from tests.gpu.machine import emulated_gpu
from tests.gpu.mirror import ALIGNMENT, Mirror, joined
from tests.support.pieces import Piece, table
from zenc.codegen.render import render
from zenc.scheme.model import Contiguous


@pytest.fixture
def libraries():
    made = Libraries(emulated_gpu().cuda)
    made.make_current(0)
    return made


@pytest.fixture
def mirror(libraries):
    """mirror(arguments), freed in the end."""
    made, stream = [], libraries.new("cuStreamCreate", 1)

    def of(*arguments):
        made.append(Mirror(libraries, stream, arguments))
        return made[-1]

    yield of
    for each in made:
        each.free()
    libraries.call("cuStreamDestroy_v2", stream)


def test_ranges_that_overlap_are_one():
    assert joined([(100, 8), (104, 8), (112, 4), (90, 2), (101, 2)]) == [(90, 2), (100, 12), (112, 4)]


def test_copies_keep_their_alignment_and_come_back(mirror):
    base = np.arange(100, dtype=np.float32)
    odd = base[3:50]
    made = mirror(odd, 7, -1, None, np.zeros(0))
    address, *numbers = made.words
    assert numbers == [7, (1 << 64) - 1, 0, 0]
    assert address != odd.ctypes.data and (address - odd.ctypes.data) % ALIGNMENT == 0
    ctypes.memset(address, 0, 8)  # the emulator's memory is the host's
    assert base[3] == 3
    made.fetch()
    assert base[:6].tolist() == [0, 1, 2, 0, 0, 5]


def test_pointers_of_a_table_lead_to_the_copies(mirror):
    bitmap = np.arange(20, dtype=np.uint64)
    pieces = [Piece(64 * 10, bitmap[:10]), Piece(64 * 11, bitmap[9:])]
    made = mirror(table(pieces), bitmap[15:])
    first, second = (type(pieces[0].descriptor()) * 2).from_address(made.words[0])
    assert second.bitmap - first.bitmap == 72 and made.words[1] - first.bitmap == 120
    assert first.values is None and (first.slots, second.slots) == (640, 704)
    assert first.bitmap != bitmap.ctypes.data and ctypes.c_uint64.from_address(second.bitmap).value == 9


def test_kernels_write_through_it():
    device = GpuDevice(render(Contiguous, "cuda"), emulated_gpu())
    numbers = np.arange(1001)
    device.launch("zenc_scan", (4, 1), [numbers, 1000, np.zeros(2, np.uint64)])
    assert np.array_equal(numbers, [*np.cumsum(np.arange(1000)) - np.arange(1000), 1000])


def test_what_fails_names_the_kernel(libraries):
    device = GpuDevice(render(Contiguous, "cuda"), emulated_gpu())
    with pytest.raises(LaunchError, match="zenc_scan: cuLaunchKernel returned 1"):
        device.launch("zenc_scan", (0,), [None, 0, None])
