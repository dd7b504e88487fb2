"""Compression: the contributed units, the codes of their values, and the keepers of losses.

    Selection   = Support | Linear                    # each takes of what those before it left
    Support     = Top | TopOfParts | TopOfBlocks | Above | RandomEach          # units, others on each rank
    Linear      = Random | Sketch | Probable | Heavy | LowRank        # a shorter dense tensor of coordinates of all
    Estimator   = Histogram | Sampled | Reused | Bisection                     # how the threshold of a Top is found
    Code        = Rounded | Integers | Float8 | RandomLevels | Sign | Vote | OneBit | Ternary | Fixed   # as bytes
    Transform   = Dct | Hadamard                       # units are coefficients of each chunk of a dense tensor
    Feedback    = Residual | Decay | Shifted | Momentum | Rounding
    Warmup      = Dense | Falling

The three ideas do not know of each other. Numeric fields are the arguments in the language, in their order; their
metadata has the range of each. A field that follows ``by`` has its words in its metadata; ``CODES`` and the other
tables have all others. The loss of a selection or a code is kept by the rank that made it, in its residual, where
``feedback`` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

DEFAULT_SEED = 0x5EED
MOST_SEED = (1 << 64) - 1
MOST_BLOCK = 1 << 20
MOST_CHUNK = 1 << 10


def within(least: float, most: float, **default: Any) -> Any:
    """Return a field whose argument is at least ``least`` and at most ``most``; above 0 where ``least`` is 0.0."""
    return field(metadata={"range": (least, most)}, **default)


def _share(**default: Any) -> Any:
    """Return a field for a share of the units: above 0, at most 1."""
    return within(0.0, 1.0, **default)


def _seed() -> Any:
    return within(0, MOST_SEED, default=DEFAULT_SEED)


class Summability(Enum):
    """Ways in which encoded values may be summed."""

    EXACT = "exact"
    """Values are integers of one scale, and so add without loss: at every hop, in any order."""
    ROUNDED = "rounded"
    """Values are rounded anew at each hop."""
    CODED = "coded"
    """Values are decoded, summed and encoded: at most once a phase on any way."""
    VOTED = "voted"
    """Values are treated as by CODED, and a push encodes all contributions first, those of the rank that sums too."""


# ---- Estimators: the threshold of a Top


@dataclass(frozen=True, slots=True)
class Histogram:
    """An exact estimator: a radix histogram of magnitudes, refined to the threshold; of equals it takes the first."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The threshold of a sample of ``share`` of the units (DGC, ICLR 2018, section 5)."""

    share: float = _share(default=0.01)


@dataclass(frozen=True, slots=True)
class Reused:
    """The exact threshold of every ``steps``-th call, for those between as well (Ok-Topk, PPoPP 2022).

    It is found anew where a sample says that it takes too many, and after a call in which it took a fifth more than its
    share, or a fifth less.
    """

    steps: int = within(1, 1_000_000, default=32)


@dataclass(frozen=True, slots=True)
class Bisection:
    """A threshold found in ``steps`` halvings of the range of magnitudes (MSTopK, MLSys 2021)."""

    steps: int = within(1, 64, default=20)


Estimator: TypeAlias = Histogram | Sampled | Reused | Bisection

EXACT = Histogram()
ESTIMATORS: Mapping[str, type[Any]] = {
    "histogram": Histogram,
    "sampled": Sampled,
    "reused": Reused,
    "bisection": Bisection,
}


# ---- Selections


@dataclass(frozen=True, slots=True)
class Top:
    """The ``density`` of all units that are greatest in magnitude, one at least."""

    density: float = _share()
    by: Estimator = field(default=EXACT, metadata={"by": ESTIMATORS})


@dataclass(frozen=True, slots=True)
class TopOfParts:
    """The ``density`` of each part on its own that are greatest: messages are of one size (TopKA2A, ICPP 2024)."""

    density: float = _share()
    by: Estimator = field(default=EXACT, metadata={"by": ESTIMATORS})


@dataclass(frozen=True, slots=True)
class TopOfBlocks:
    """The ``density`` of each block of ``block`` units that are greatest."""

    density: float = _share()
    block: int = within(2, MOST_BLOCK, default=1024)


@dataclass(frozen=True, slots=True)
class Above:
    """The units whose magnitude is ``threshold`` or more."""

    threshold: float = within(0.0, 3.4e38)


@dataclass(frozen=True, slots=True)
class RandomEach:
    """The units that each rank draws by itself with the chance ``density``, anew in each call."""

    density: float = _share()
    seed: int = _seed()


@dataclass(frozen=True, slots=True)
class Random:
    """``density`` of the units, the same ones on all ranks, drawn anew in each call."""

    density: float = _share()
    seed: int = _seed()


@dataclass(frozen=True, slots=True)
class Sketch:
    """A count sketch of ``rows`` rows, which together have ``share`` times as many cells as there are units.

    The result is the median of the estimates of each unit.
    """

    rows: int = within(1, 15, default=3)
    share: float = _share(default=0.02)
    seed: int = _seed()


@dataclass(frozen=True, slots=True)
class Probable:
    """The ``density`` of units that were greatest in the results of late: the same ones on all ranks (OSCAR)."""

    density: float = _share()


@dataclass(frozen=True, slots=True)
class Heavy:
    """The ``density`` of units that were greatest in the sketch of the call before: the same ones on all ranks.

    A call sends their values, exactly, and a sketch of the others, by which the next call finds its units: SketchSGD
    (NeurIPS 2019), whose two rounds are two calls here.
    """

    density: float = _share()
    rows: int = within(1, 15, default=5)
    share: float = _share(default=0.02)
    seed: int = _seed()

    @property
    def sketch(self) -> Sketch:
        """The sketch of the units that are not sent."""
        return Sketch(self.rows, self.share, self.seed)


@dataclass(frozen=True, slots=True)
class LowRank:
    """The product of two factors of rank ``r`` of each tensor as a matrix (PowerSGD, NeurIPS 2019).

    A call sums one of them, in a basis of the other from the call before (ACP-SGD, ICDCS 2023). A tensor is a matrix as
    ``matrix_of`` says, and is summed whole otherwise.
    """

    r: int = within(1, 1024, default=8)
    seed: int = _seed()


Support: TypeAlias = Top | TopOfParts | TopOfBlocks | Above | RandomEach
Remembering: TypeAlias = Probable | Heavy
"""Selections by what calls before have left in the history."""
Sketching: TypeAlias = Sketch | Heavy
Linear: TypeAlias = Random | Sketching | Remembering | LowRank
Selection: TypeAlias = Support | Linear


# ---- Transforms


@dataclass(frozen=True, slots=True)
class Dct:
    """The orthonormal DCT-II of each ``chunk`` of values; a shorter last one at its own length."""

    chunk: int = within(2, MOST_CHUNK, default=64)


@dataclass(frozen=True, slots=True)
class Hadamard:
    """The orthonormal Walsh-Hadamard transform of each ``block`` of values; a shorter last one stays as it is."""

    block: int = field(default=64, metadata={"range": (2, MOST_CHUNK), "power": True})


Transform: TypeAlias = Dct | Hadamard


# ---- Codes


ROUNDINGS: Mapping[str, str] = {"chance": "chance"}


@dataclass(frozen=True, slots=True)
class Rounded:
    """16-bit floating point: ``f16`` or ``bf16``, to nearest, ties to even.

    ``rounding``: ``nearest``, or ``chance``: to the number below or above, at random so that the mean is right.
    """

    name: str
    rounding: str = field(default="nearest", metadata={"by": ROUNDINGS})

    summability = Summability.ROUNDED


@dataclass(frozen=True, slots=True)
class Integers:
    """``bits`` bits a value, scaled by the greatest magnitude of each block; to nearest."""

    bits: int = within(2, 16, default=8)
    block: int = within(8, MOST_BLOCK, default=2048)

    summability = Summability.CODED


@dataclass(frozen=True, slots=True)
class BlockCode:
    """A code whose values have a scale for each ``block`` of them."""

    block: int = within(8, MOST_BLOCK, default=2048)

    summability = Summability.CODED


@dataclass(frozen=True, slots=True)
class Float8(BlockCode):
    """8-bit floating point, e4m3 (FP8 Formats for Deep Learning, 2022), times a power of two for each block.

    Values of at least 2^-13 of the block's greatest magnitude are off by 1/16 of themselves at most.
    """


@dataclass(frozen=True, slots=True)
class RandomLevels:
    """``s`` levels of the norm of each block, rounded at random so that the mean is right (QSGD, NeurIPS 2017)."""

    s: int = within(1, 32767, default=64)
    block: int = within(8, MOST_BLOCK, default=512)
    seed: int = _seed()

    summability = Summability.CODED


@dataclass(frozen=True, slots=True)
class Sign(BlockCode):
    """The sign of a value, times the mean magnitude of its block (EF-signSGD, ICML 2019)."""


@dataclass(frozen=True, slots=True)
class Vote(BlockCode):
    """The sign of a value, times its contributions: sums become their majority, at random for 0 (Signum, ICLR 2019)."""

    summability = Summability.VOTED


@dataclass(frozen=True, slots=True)
class OneBit(BlockCode):
    """A code of one bit a value: the mean of the block's values at or above 0, or of those below (1-bit SGD, 2014)."""


@dataclass(frozen=True, slots=True)
class Ternary(BlockCode):
    """-1, 0 or 1 times the greatest magnitude of the block, at random so that the mean is right (TernGrad, 2017)."""

    seed: int = _seed()


CODERS: Mapping[str, str] = {"asc": "asc"}


@dataclass(frozen=True, slots=True)
class Fixed:
    """Integers of ``bits`` bits with one scale on all ranks, a power of two, from the greatest magnitude of any rank.

    All loss occurs before the first hop. Sums of m contributions have ceil(log2(m)) more bits, and lose nothing.
    ``coder``: ``none``, or ``asc``, a range coder whose model is one of each step and adapts, and does not travel.
    """

    bits: int = within(2, 16, default=8)
    coder: str = field(default="none", metadata={"by": CODERS})

    summability = Summability.EXACT


Code: TypeAlias = Rounded | Integers | Float8 | RandomLevels | Sign | Vote | OneBit | Ternary | Fixed
UNBIASED = (RandomLevels, Ternary)
"""Codes whose mean is the value, so their losses need no keeper; the same is true of a Rounded by chance."""


# ---- Feedback and warm-up


@dataclass(frozen=True, slots=True)
class Residual:
    """Error feedback: losses of a call are added to the next gradient of the same name."""

    vectors = ("residual",)


@dataclass(frozen=True, slots=True)
class Decay:
    """Momentum: ``beta`` times what a call leaves is added to the next gradient, and for 0 nothing is kept.

    Selections take out what they send (DeMo, arXiv 2411.19870); votes leave all of it (Signum, ICLR 2019).
    """

    beta: float = within(0, 1.0, default=0.999)

    vectors = ("residual",)


@dataclass(frozen=True, slots=True)
class Shifted:
    """EF21's (NeurIPS 2021): a rank contributes its gradient less all that its calls have sent.

    The result is the sum of all that the calls of all ranks have sent, which each rank keeps.
    """

    vectors = ("shift", "sent")


@dataclass(frozen=True, slots=True)
class Momentum:
    """DGC's (ICLR 2018, section 3): momentum ``m`` is summed before selection, and cleared where units were sent."""

    m: float = within(0.0, 1.0, default=0.9)

    vectors = ("residual", "velocity")


@dataclass(frozen=True, slots=True)
class Rounding:
    """Error feedback for the rounding of sums alone: the losses of 16-bit sums of gradients are kept as by Residual."""

    vectors = ("residual",)


Feedback: TypeAlias = Residual | Decay | Shifted | Momentum | Rounding
"""Keepers of losses; ``vectors`` are the names of what they keep of each value, as KeptVectors has them."""


@dataclass(frozen=True, slots=True)
class Dense:
    """The first ``steps`` calls of a name contribute everything."""

    steps: int = within(1, 1_000_000_000)


@dataclass(frozen=True, slots=True)
class Falling:
    """Density falls from ``start`` to the selection's own in ``steps`` calls of a name (DGC, section 3.3).

    Each stage has a quarter of the density of the one before, and stages are equally long. Momentum is cleared
    nowhere meanwhile: where a fourth of the units is sent it would not add up to any.
    """

    steps: int = within(1, 1_000_000_000)
    start: float = _share(default=0.25)


Warmup: TypeAlias = Dense | Falling


SELECTIONS: Mapping[str, type[Any]] = {
    "top": Top,
    "top_of_parts": TopOfParts,
    "top_of_blocks": TopOfBlocks,
    "above": Above,
    "random_each": RandomEach,
    "random": Random,
    "sketch": Sketch,
    "probable": Probable,
    "heavy": Heavy,
}
PROJECTIONS: Mapping[str, type[Any]] = {"lowrank": LowRank}
TRANSFORMS: Mapping[str, type[Any]] = {"dct": Dct, "hadamard": Hadamard}
CODES: Mapping[str, type[Any]] = {
    "f16": Rounded,
    "bf16": Rounded,
    "int": Integers,
    "levels": RandomLevels,
    "sign": Sign,
    "onebit": OneBit,
    "ternary": Ternary,
    "fixed": Fixed,
    "fp8": Float8,
    "vote": Vote,
}
FEEDBACKS: Mapping[str, type[Any]] = {
    "residual": Residual,
    "decay": Decay,
    "shifted": Shifted,
    "momentum": Momentum,
    "rounding": Rounding,
}
WARMUPS: Mapping[str, type[Any]] = {"dense": Dense, "falling": Falling}


def matrix_of(shape: Sequence[int], r: int) -> tuple[int, int] | None:
    """Return rows and columns of a tensor of ``shape``: its first extent, and all others.

    None where two factors of rank ``r`` have no fewer values.
    """
    rows, columns = shape[0] if shape else 1, math.prod(shape[1:])
    return (rows, columns) if r * (rows + columns) < rows * columns else None


def count_of(density: float, units: int) -> int:
    """Return the number of units that a selection of ``density`` takes: at least one, where ``units`` is not 0."""
    return min(units, max(1, round(density * units)))
