"""The argument block of a call sequence, and the outcome of a call in words."""

from __future__ import annotations

import ctypes

from zenc.errors import Diagnostic, SynchronisationError, TensorError, ZencError
from zenc.plan.ir import PhaseKind
from zenc.scheme.model import Format
from zenc.wire.constants import TABLE_ENUMS, WIRE_FORMATS, CallOutcome
from zenc.wire.structs import CALL, PHASE_COUNT, ctypes_fields

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
"""(user, bytes) -> the address of device memory, or 0 if no memory is left."""


CHOOSE = ctypes.CFUNCTYPE(
    ctypes.c_int64, *[ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
)
"""(user, phase, slots, count, values, loss, key) -> 1, or 0 if that failed: a selection, as ``call_args.h`` has it."""


class PhaseCount(ctypes.Structure):
    """Statistics of a call's pushes, its pulls, or its announce: fields of PHASE_COUNT.

    Bytes by format are those of bodies, by ``WIRE_FORMATS``; values without an index count as dense.
    """

    _fields_ = ctypes_fields(PHASE_COUNT)

    def sent(self) -> dict[Format, int]:
        """Return the bytes of bodies sent, by format."""
        return {wire: size for wire, size in zip(WIRE_FORMATS, self.formats_sent, strict=True) if size}

    def received(self) -> dict[Format, int]:
        """Return the bytes of bodies received, by format."""
        return {wire: size for wire, size in zip(WIRE_FORMATS, self.formats_received, strict=True) if size}


class CallArgs(ctypes.Structure):
    """Fields of CALL. Addresses are of the device unless it says otherwise."""

    _fields_ = ctypes_fields(
        [field for group in CALL.values() for field in group],
        {"Allocate": ALLOCATE, "Choose": CHOOSE, "PhaseCount": PhaseCount},
    )

    def phase(self, kind: PhaseKind) -> PhaseCount:
        """Return statistics of the call's phases of ``kind``."""
        found: PhaseCount = self.phases[TABLE_ENUMS["Kind"].index(kind.value)]
        return found


_SAME_CALLS = "all ranks must call the same collectives, on tensors of one name, shape and dtype, in the same order"
_ERRORS: dict[CallOutcome, tuple[str, type[ZencError], str | None]] = {
    CallOutcome.CUDA_FAILED: (
        "cuda-failed",
        SynchronisationError,
        "see what nvidia-smi and the system's log say of this GPU; ZENC_GPU_CHECK=1 shows whose kernel failed",
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
    CallOutcome.NOT_OWNED: (
        "not-owned",
        TensorError,
        "give all_gather what reduce_scatter gave, or rows of collective.owned(shape) alone",
    ),
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
    """Return the error of a call of ``scheme`` that did not end well."""
    id, kind, help = _ERRORS[CallOutcome(call.outcome)]
    text = call.message.decode("utf-8", "replace")
    if call.outcome == CallOutcome.DIFFERENT_CALLS:
        text = f"rank {call.peer} is in another call: {text}"
    return kind(Diagnostic(id, f"{text} (scheme {scheme})", help=help))
