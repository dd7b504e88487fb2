"""The value of ``balance`` -> the mapping of units to slots."""

from __future__ import annotations

from collections.abc import Callable

from zenc.language.syntax import Phrase, Value, Word
from zenc.scheme.arguments import match_arguments
from zenc.scheme.constants import Environment, constant_integer
from zenc.scheme.model import Contiguous, Mapping, Permutation
from zenc.scheme.report import Report, unknown

DEFAULT_SEED = 0x5EED

_HELP = "write 'imbalanced', or 'balanced by permutation'"


def resolve_balance(value: Value, environment: Environment, report: Report) -> Mapping | None:
    """``imbalanced``, or ``balanced by MAPPING``; None, and a diagnostic, where it is neither."""
    if not isinstance(value, Phrase):
        report.error("wrong-value", "the value of 'balance' is no schedule", value.span, help=_HELP)
        return None
    first = value.words[0]
    if first.name.text not in ("imbalanced", "balanced"):
        message = unknown("balance", first.name.text, ("imbalanced", "balanced"))
        report.error("unknown-value", message, first.name.span, help=_HELP)
        return None
    match_arguments(first, (), report)
    wanted = ("by",) if first.name.text == "balanced" else ()
    if value.connectives != wanted:
        what = "'balanced' needs to know by what" if wanted else "'imbalanced' stands alone"
        report.error("wrong-value", what, value.span, help=_HELP)
        return None
    return _mapping(value.words[1], environment, report) if wanted else Contiguous()


def _mapping(word: Word, environment: Environment, report: Report) -> Mapping | None:
    read = MAPPINGS.get(word.name.text)
    if read is None:
        report.error("unknown-value", unknown("mapping", word.name.text, MAPPINGS), word.name.span)
        return None
    return read(word, environment, report)


def _permutation(word: Word, environment: Environment, report: Report) -> Permutation | None:
    """``permutation`` or ``permutation(SEED)``."""
    given = match_arguments(word, ("seed",), report).get("seed")
    if given is None:
        return Permutation(DEFAULT_SEED)
    seed = constant_integer(given.value, environment, report)
    if seed is None:
        return None
    if not 0 <= seed < 2**64:
        report.error("wrong-range", f"a seed is 0 to 2^64 - 1, not {seed}", given.span)
        return None
    return Permutation(seed)


MAPPINGS: dict[str, Callable[[Word, Environment, Report], Mapping | None]] = {"permutation": _permutation}
"""What may follow ``balanced by``."""
