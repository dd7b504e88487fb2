"""Expected message bytes, for gradients of which every rank holds a share of the units at random.

A piece with the contributions of k ranks then holds 1 - (1 - density)^k of its slots; in blocks of b slots, b k instead
of k. Real gradients overlap more and, under ``imbalanced``, crowd in a few parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from zenc.analysis.holder_bytes import weights as by_holders
from zenc.errors import Diagnostic, SchemeError
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, Plan
from zenc.scheme.model import Format
from zenc.verify.provenance import Deliveries
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.formats import SegmentShape, body_bytes, wire_format
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ExpectedBytes:
    """Bytes of the messages and segments of ``plan`` among ``size`` ranks; parts count as equally long.

    Raises SchemeError (``bad-load``) for a gradient that can't be.
    """

    plan: Plan
    size: int
    units: int
    width: int
    dtype: str
    density: float

    def __post_init__(self) -> None:
        found = [
            (not 0 <= self.density <= 1, f"a density is between 0 and 1, not {self.density}"),
            (self.units < 0 or self.width < 1, f"{self.units} units of {self.width} values make no tensor"),
            (self.dtype not in DTYPE_BYTES, f"unknown dtype {self.dtype!r}; one of {', '.join(DTYPE_BYTES)}"),
        ]
        if wrong := [Diagnostic("bad-load", message) for fails, message in found if fails]:
            raise SchemeError(wrong)

    @property
    def slots(self) -> int:
        """Of a part."""
        return -(-self.units // self.plan.parts(self.size))

    @property
    def unit_bytes(self) -> int:
        """Of the values of a unit."""
        return self.width * DTYPE_BYTES[self.dtype]

    def units_held(self, ranks: int) -> float:
        """The units that so many ranks hold together."""
        return self.units * (1 - (1 - self.density) ** ranks)

    def messages(self, phase: Phase, moved: Deliveries, message: Ints, count: int) -> Floats:
        """The bytes of ``count`` messages, of which ``message[i]`` carries what row i of ``moved`` delivers."""
        if self.plan.announces:
            rows = by_holders(phase.kind, moved, self.size, self.units, self.density, self.unit_bytes)
            return np.asarray(np.bincount(message, rows, minlength=count) + MESSAGE_HEADER_BYTES)
        columns = moved.contributors * (self.size + 1) + moved.pieces
        kinds, inverse = np.unique(columns, return_inverse=True)
        weights = [self.segments(phase.format, *divmod(kind, self.size + 1)) for kind in kinds.tolist()]
        rows = np.asarray(weights, dtype=np.float64)[inverse.reshape(-1)]
        return np.asarray(np.bincount(message, rows, minlength=count) + MESSAGE_HEADER_BYTES)

    def segments(self, format: Format, contributors: int, pieces: int) -> int:
        """The bytes of ``pieces`` segments of one part, with ``contributors`` together."""
        return pieces * _segment_bytes(self, format, contributors // pieces)


@lru_cache(maxsize=1 << 14)
def _segment_bytes(weigher: ExpectedBytes, format: Format, contributors: int) -> int:
    drawn = contributors * max(1, format.block)  # a block travels where any of its slots is there
    density = 1.0 if format is Format.DENSE else 1 - (1 - weigher.density) ** drawn
    count = round(weigher.slots * density)
    shape = SegmentShape(weigher.slots, count, weigher.width, DTYPE_BYTES[weigher.dtype])
    return SEGMENT_HEADER_BYTES + body_bytes(wire_format(format, weigher.slots, count), shape)
