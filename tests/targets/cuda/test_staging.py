"""Pinned memory of a communicator: there before the first call, of any size, and the same in every call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.build import compiled, engine
from tests.emulator.libraries import Libraries
from tests.support.emulated import STRICT
from zenc.codegen.render import headers, include_dirs
from zenc.runtime.gpu.call_args import CallArgs
from zenc.wire.constants import STAGING_BYTES, CallOutcome

SOURCE = Path(__file__).with_name("staging.cpp")


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    command = [*STRICT, *(f"-I{path}" for path in include_dirs("cuda")), str(SOURCE)]
    made = ctypes.CDLL(str(compiled(command, {**headers("cuda"), "staging.cpp": SOURCE.read_text("utf-8")})))
    made.take.restype = made.make_staging.restype = ctypes.c_void_p
    error = ctypes.create_string_buffer(200)
    assert made.zenc_bind(str(engine()).encode(), None, error, ctypes.c_uint64(200)), error.value
    return made


@pytest.fixture
def cuda() -> Iterator[Libraries]:
    made = Libraries()
    made.make_current(0)
    yield made
    made.fail_on("")


@pytest.fixture
def take(library, cuda):
    """take(call, bytes) -> the address, or None"""
    staging = ctypes.c_void_p(library.make_staging())

    def taken(call, size):
        return library.take(staging, ctypes.byref(call), ctypes.c_uint64(size))

    taken.reset = lambda: library.reset(staging)
    taken.keep = lambda: library.keep(staging)
    yield taken
    library.drop(staging)


def test_small_pieces_follow_each_other_in_memory_that_was_there_before(take, cuda):
    cuda.fail_on("cuMemHostAlloc:1=2")
    call = CallArgs()
    first = take(call, 1)
    assert first % 16 == 0 and [take(call, size) - first for size in (16, 17, 8)] == [16, 32, 64]
    assert take(call, STAGING_BYTES - 80) == first + 80


def test_what_does_not_fit_gets_memory_of_its_own(take):
    call = CallArgs()
    first, large, small = take(call, 16), take(call, 5 * STAGING_BYTES), take(call, 16)
    ctypes.memset(large, 7, 5 * STAGING_BYTES)
    take.reset()
    assert (take(call, 16), take(call, 5 * STAGING_BYTES)) == (first, large) and take(call, 16) == small
    assert call.outcome == CallOutcome.DONE


def test_what_is_kept_stays_and_the_rest_is_free_again(take, cuda):
    """Kept memory belongs to captured calls; a call that took none keeps none."""
    call = CallArgs()
    take.keep()
    cuda.fail_on("cuMemHostAlloc:1=2")
    first = take(call, 100)
    cuda.fail_on("")
    take.keep()
    second = take(call, 100)
    assert not first <= second < first + STAGING_BYTES
    take.reset()
    assert take(call, 64) == second and call.outcome == CallOutcome.DONE


def test_without_more_memory_the_call_fails(take, cuda):
    cuda.fail_on("cuMemHostAlloc:1=2")
    call = CallArgs()
    assert take(call, STAGING_BYTES + 1) is None
    assert (
        call.outcome == CallOutcome.CUDA_FAILED and b"cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY" in call.message
    )
