"""Work of compression: the seconds that a rank selects, encodes and decodes, by a calibration or by passes over memory.

A calibration has bytes of float32 a second for each of COMPRESSION. A missing speed is estimated as a number of passes
over the values at the speed of a merge, and ``note`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from zenc.plan.ir import PhaseKind, Plan
from zenc.scheme import compression as words
from zenc.scheme.compression import CODES, ESTIMATORS, PROJECTIONS, SELECTIONS, Code, Fixed, Selection
from zenc.scheme.compression_words import words_of
from zenc.simulator.calibration import Calibration

RESIDUAL, QUANTISE = "residual", "quantise"
ASC = "asc"
_CODES = (*CODES, ASC)

COMPRESSION = (
    RESIDUAL,
    QUANTISE,
    *SELECTIONS,
    *PROJECTIONS,
    *words.TRANSFORMS,
    *(f"top by {word}" for word in ESTIMATORS if word != "histogram"),
    *(f"{way} {word}" for way in ("encode", "decode") for word in _CODES),
    "encode bf16 by chance",
)
"""Names of the speeds of compression in a calibration."""
PASSES = {
    **{"encode asc": 40.0, "decode asc": 100.0, "lowrank": 10.0, RESIDUAL: 3.0, QUANTISE: 5.0},
    **dict.fromkeys(("sketch", "heavy"), 40.0),
    **dict.fromkeys(words.TRANSFORMS, 20.0),
}
"""Passes over memory where nothing was measured: the most that these kernels may take on one core."""
SELECTING, ENCODING, DECODING = 5.0, 4.0, 2.0
"""Passes over memory of all other kernels where nothing was measured."""


def selecting(selection: Selection) -> str:
    """Return the name of the work of ``selection``: ``sketch``, ``top by sampled``."""
    head, _, by = words_of(selection).partition(" by ")
    word, way = head.partition("(")[0], by.partition("(")[0]
    return f"{word} by {way}" if way and word == "top" else word


def encoding(code: Code) -> str:
    """Return the name of encoding values in ``code``."""
    return f"encode {_word(code)}"


def decoding(code: Code) -> str:
    """Return the name of decoding values from ``code``, however it rounded them."""
    return f"decode {_word(code).partition(' ')[0]}"


def _word(code: Code) -> str:
    return ASC if getattr(code, "coder", "none") != "none" else words_of(code).partition("(")[0]


def contributing(plan: Plan) -> list[str]:
    """Return the work on a gradient before ``plan`` packs it, and on its residuals afterwards."""
    first = plan.of(PhaseKind.PUSH)[0]
    twice = isinstance(plan.feedback, words.Shifted) or plan.votes
    found = [*(selecting(each) for each in first.select), *[RESIDUAL] * 2 * twice]
    if plan.transform:  # there, and back for the residual and the result; measured by chunks of 64
        word, _, chunk = words_of(plan.transform).rstrip(")").partition("(")
        found += [word] * 3 * -(-int(chunk) // 64)
    if isinstance(first.code, Fixed):
        return [*found, QUANTISE]
    return found or [RESIDUAL] * plan.reworks


def seconds(name: str, bytes: float, calibration: Calibration) -> float:
    """Return the seconds that ``name`` takes over ``bytes`` of values."""
    measured = calibration.compression.get(name)
    if measured is not None:
        return bytes / measured
    usual = {"encode": ENCODING, "decode": DECODING}.get(name.partition(" ")[0], SELECTING)
    return PASSES.get(name, usual) * bytes / calibration.merge.speed


def note(plan: Plan, calibration: Calibration) -> str:
    """Return whether the seconds of selections and codes of ``plan`` are calibrated or estimated, in words."""
    missing = [name for name in dict.fromkeys(_names(plan)) if name not in calibration.compression]
    if not missing:
        return "seconds of what selects and encodes are calibrated"
    return f"seconds of {', '.join(missing)} are estimated by passes over memory"


def _names(plan: Plan) -> Iterator[str]:
    yield from contributing(plan)
    for phase in plan.phases:
        yield from map(selecting, phase.merge)
        if phase.code is not None:
            yield from (encoding(phase.code), decoding(phase.code))
