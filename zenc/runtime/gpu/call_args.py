"""The argument block of a call sequence, as C++ sees it, and what became of a call in words.

Twins of ``templates/cuda/zenc_host/call/call_args.h``.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_double, c_int64, c_uint64, c_void_p
from enum import IntEnum

from zenc.errors import Diagnostic, SynchronisationError, TensorError, ZencError
from zenc.scheme.model import Format
from zenc.wire.formats import DTYPE_BYTES, WIRE_FORMATS

MOST_MESSAGE = 512
DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPE_BYTES)}
ALLOCATE = ctypes.CFUNCTYPE(c_uint64, c_void_p, c_uint64)
"""(user, bytes) -> the address of device memory, or 0 if there is none left."""


class CallOutcome(IntEnum):
    DONE = 0
    CUDA_FAILED = 1
    NCCL_FAILED = 2
    DEADLINE_PASSED = 3
    DIFFERENT_CALLS = 4
    OUT_OF_MEMORY = 5
    BAD_UNIT = 6
    CORRUPT_SEGMENT = 7
    UNUSABLE_GROUP = 8
    NOT_CAPTURABLE = 9


class PhaseCount(ctypes.Structure):
    """What a call did in its pushes, its pulls, or its announce.

    Bytes by format are those of bodies, by ``WIRE_FORMATS``; values without an index count as dense.
    """

    _fields_ = (
        ("bytes_sent", c_int64),
        ("bytes_received", c_int64),
        ("messages_sent", c_int64),
        ("messages_received", c_int64),
        ("formats_sent", c_int64 * len(WIRE_FORMATS)),
        ("formats_received", c_int64 * len(WIRE_FORMATS)),
        ("nanoseconds", c_int64),
    )

    def sent(self) -> dict[Format, int]:
        """The bytes of bodies sent, by format."""
        return {wire: size for wire, size in zip(WIRE_FORMATS, self.formats_sent, strict=True) if size}

    def received(self) -> dict[Format, int]:
        """The bytes of bodies received, by format."""
        return {wire: size for wire, size in zip(WIRE_FORMATS, self.formats_received, strict=True) if size}


class CallArgs(ctypes.Structure):
    """Addresses are of the device unless the header says otherwise."""

    _fields_ = (
        ("number", c_uint64),
        ("signature", c_uint64),
        ("units", c_int64),
        ("width", c_int64),
        ("dtype", c_int64),
        ("tables", c_void_p),
        ("r1", c_double),
        ("r2", c_double),
        ("part_slots", c_void_p),
        ("ids", c_void_p),
        ("n", c_int64),
        ("values", c_void_p),
        ("divisor", c_int64),
        ("dense_out", c_void_p),
        ("kernels", c_void_p),
        ("communicator", c_void_p),
        ("stream", c_void_p),
        ("side", c_void_p),
        ("allocate", ALLOCATE),
        ("user", c_void_p),
        ("arena", c_void_p),
        ("arena_bytes", c_uint64),
        ("deadline", c_int64),
        ("own_share", c_double),
        ("sum_share", c_double),
        ("report", c_void_p),
        ("ids_out", c_void_p),
        ("values_out", c_void_p),
        ("count_out", c_int64),
        ("arena_wanted", c_uint64),
        ("counts_in", c_void_p),
        ("counts_out", c_void_p),
        ("made_again", c_int64),
        ("phases", PhaseCount * 3),
        ("outcome", c_int64),
        ("peer", c_int64),
        ("detail", c_int64),
        ("message", c_char * MOST_MESSAGE),
    )


_SAME_CALLS = "all ranks must call the same collectives, on tensors of the same shape and dtype, in the same order"
_ERRORS: dict[CallOutcome, tuple[str, type[ZencError], str | None]] = {
    CallOutcome.CUDA_FAILED: (
        "cuda-failed",
        SynchronisationError,
        "see what nvidia-smi and the system's log say of this GPU; CUDA_LAUNCH_BLOCKING=1 shows whose kernel failed",
    ),
    CallOutcome.NCCL_FAILED: (
        "peer-lost",
        SynchronisationError,
        "a rank has died or given up: its own output says why",
    ),
    CallOutcome.DEADLINE_PASSED: (
        "deadline",
        SynchronisationError,
        "see whether all ranks are alive and make the same calls; deadline= sets how long to wait",
    ),
    CallOutcome.DIFFERENT_CALLS: ("different-calls", SynchronisationError, _SAME_CALLS),
    CallOutcome.OUT_OF_MEMORY: (
        "out-of-memory",
        TensorError,
        "leave a call more of the GPU's memory: smaller batches or tables, or torch.cuda.empty_cache() before it",
    ),
    CallOutcome.BAD_UNIT: ("unit-out-of-range", TensorError, None),
    CallOutcome.CORRUPT_SEGMENT: ("corrupt-segment", SynchronisationError, None),
    CallOutcome.UNUSABLE_GROUP: (
        "group-broken",
        SynchronisationError,
        "end all ranks and start them again, from the last checkpoint",
    ),
    CallOutcome.NOT_CAPTURABLE: (
        "not-capturable",
        TensorError,
        "make the call before the capture, or let the graph hold collective.capturable(tensor)",
    ),
}


def failure_of(call: CallArgs, scheme: str) -> ZencError:
    """The error of a call of ``scheme`` that did not end well."""
    id, kind, help = _ERRORS[CallOutcome(call.outcome)]
    text = call.message.decode("utf-8", "replace")
    if call.outcome == CallOutcome.DIFFERENT_CALLS:
        text = f"rank {call.peer} is in another call: {text}"
    return kind(Diagnostic(id, f"{text} (scheme {scheme})", help=help))
