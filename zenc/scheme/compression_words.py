"""Words of compression: phrases of the language -> selections, codes and keepers, and these -> the words that say them.

    selection = one ("then" one)*        code, feedback, warmup = one        one = word (ARGUMENTS) ("by" one)?

Which words there are, and their arguments, is in the tables and fields of ``zenc.scheme.compression`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from zenc.errors import Span
from zenc.language.syntax import Value
from zenc.language.terms import Argument, Phrase, Word
from zenc.scheme.arguments import Environment, constant, constant_integer, match_arguments
from zenc.scheme.collector import Collector, unknown
from zenc.scheme.compression import (
    CODES,
    ESTIMATORS,
    FEEDBACKS,
    PROJECTIONS,
    SELECTIONS,
    TRANSFORMS,
    WARMUPS,
    Code,
    Decay,
    Selection,
)

ALL = "all"
"""The selection of everything."""
NONE = "none"
"""The word for no feedback and no warm-up."""
OPTIONAL = ("feedback", "warmup", "transform")
"""Kinds of words, and their keys, of which a scheme has one or none."""
TABLES: Mapping[str, Mapping[str, Any]] = {
    "selection": SELECTIONS,
    "projection": PROJECTIONS,
    "transform": TRANSFORMS,
    "code": CODES,
    "feedback": FEEDBACKS,
    "warmup": WARMUPS,
}
"""The words of each kind, by what an author calls it."""


def read_selection(value: Value, environment: Environment, report: Collector) -> tuple[Selection, ...]:
    """Read ``all``, or selections with ``then`` between them; report and leave out wrong ones."""
    if is_alone(value, ALL, report):
        return ()
    found = [read_word("selection", one, SELECTIONS, environment, report, (ALL,)) for one in split(value, "then")]
    return tuple(one for one in found if one is not None)


def read_code(phrase: Phrase, environment: Environment, report: Collector, also: tuple[str, ...] = ()) -> Code | None:
    """Read the code behind ``as``; None, with a diagnostic, where it is no code; ``also`` are further words."""
    code: Code | None = read_word("code", phrase, CODES, environment, report, also)
    return code


def read_projection(value: Value, environment: Environment, report: Collector) -> tuple[Selection, ...]:
    """Read ``lowrank(R)``; an empty tuple for ``none``, and with a diagnostic for anything else."""
    found = read_optional("projection", value, environment, report)
    return (found,) if found else ()


def read_optional(kind: str, value: Value, environment: Environment, report: Collector) -> Any:
    """Read a word of the ``kind``; None for ``none`` and ``decay(0)``, and with a diagnostic for anything else."""
    if is_alone(value, NONE, report) or not isinstance(value, Phrase):
        return None
    found = read_word(kind, value, TABLES[kind], environment, report, (NONE,))
    return None if found == Decay(0) else found


def is_alone(value: Value, word: str, report: Collector) -> bool:
    """Return whether ``value`` is ``word``; report its arguments, and a schedule in its place."""
    if not isinstance(value, Phrase):
        report.error("wrong-value", "these are words, and no schedule", value.span)
        return False
    if len(value.words) > 1 or value.words[0].name.text != word:
        return False
    match_arguments(value.words[0], (), report)
    return True


def split(value: Value, connective: str) -> list[Phrase]:
    """Return the phrases of ``value`` between which ``connective`` stands; an empty list for a schedule."""
    if not isinstance(value, Phrase):
        return []
    places = [place for place, between in enumerate(value.connectives) if between == connective]
    starts, ends = [0, *(place + 1 for place in places)], [*(place + 1 for place in places), len(value.words)]
    return [_part(value, start, end) for start, end in zip(starts, ends, strict=True)]


def _part(phrase: Phrase, start: int, end: int) -> Phrase:
    words = phrase.words[start:end]
    first, last = words[0].span, words[-1].span
    span = Span(first.source, first.start, last.end) if first and last else phrase.span
    return Phrase(words, phrase.connectives[start : end - 1], span=span)


def read_word(
    kind: str,
    phrase: Phrase,
    table: Mapping[str, Any],
    environment: Environment,
    report: Collector,
    also: tuple[str, ...] = (),
) -> Any:
    """Read the entry of ``table`` that ``phrase`` names, a ``kind`` of words; None, and reported, where it has none."""
    word, given_by = phrase.words[0], phrase.connectives
    name = word.name.text
    if name not in table:
        report.error("unknown-value", unknown(kind, name, (*table, *also)), word.name.span)
        return None
    made = table[name]
    by = next((field for field in fields(made) if "by" in field.metadata), None)
    if given_by not in ((), ("by",)) or (given_by and by is None):
        how = "one 'by' may follow it" if by else "it stands alone"
        report.error("wrong-value", f"'{name}' is a {kind} by itself: {how}", phrase.span)
        return None
    values = _arguments(word, made, environment, report)
    if by is not None and given_by:
        values[by.name] = _read_by(by, phrase.words[1], environment, report)
    return None if values is None or None in values.values() else made(**values)


def _read_by(by: Field[Any], word: Word, environment: Environment, report: Collector) -> Any:
    known: Mapping[str, Any] = by.metadata["by"]
    if isinstance(known.get(word.name.text), str):
        match_arguments(word, (), report)
        return known[word.name.text]
    return read_word("way", Phrase((word,), span=word.span), known, environment, report)


def arguments_of(made: Any) -> list[Field[Any]]:
    """Return the fields that the arguments of a word give, in their order."""
    return [field for field in fields(made) if field.type in ("int", "float")]


def _arguments(word: Word, made: Any, environment: Environment, report: Collector) -> dict[str, Any]:
    """Return each field's value; None where the report has an error about it."""
    known = arguments_of(made)
    names = [field.name for field in known]
    given = match_arguments(word, names, report)
    values: dict[str, Any] = {"name": word.name.text} if any(field.name == "name" for field in fields(made)) else {}
    for field in known:
        if field.name in given:
            values[field.name] = _argument(word, field, given[field.name], environment, report)
        elif field.default is MISSING:
            message = f"'{word.name.text}' needs a value for '{field.name}'"
            report.error("wrong-arguments", message, word.span, help=f"write {word.name.text}({', '.join(names)})")
            values[field.name] = None
    return values


def _argument(
    word: Word, field: Field[Any], given: Argument, environment: Environment, report: Collector
) -> int | float | None:
    read = constant_integer if field.type == "int" else constant
    value = read(given.value, environment, report)
    least, most = field.metadata["range"]
    if value is None:
        return None
    if not is_within(value, field):
        above = "above 0" if _is_open(field) else f"{least:,} or more"
        above = f"a power of two, {above}" if "power" in field.metadata else above
        message = f"'{field.name}' of '{word.name.text}' is {above} and at most {most:,}, not {value}"
        report.error("wrong-range", message, given.span)
        return None
    return value if field.type == "int" else float(value)


def _is_open(field: Field[Any]) -> bool:
    return isinstance(field.metadata["range"][0], float) and field.metadata["range"][0] == 0


def is_within(value: float, field: Field[Any]) -> bool:
    """Return whether ``value`` lies within the range of a field."""
    least, most = field.metadata["range"]
    if "power" in field.metadata and int(value) & (int(value) - 1):
        return False
    return math.isfinite(value) and least <= value <= most and not (_is_open(field) and value == 0)


# ---- Data -> words


def selection_text(selection: tuple[Selection, ...], whole: bool = False) -> str:
    """Return ``probable(0.05) then sketch(3, 0.02)``, as an author writes it; under ``whole`` with every argument."""
    return " then ".join(words_of(one, whole) for one in selection) or ALL


def key_of(selection: Sequence[Selection]) -> str:
    """Return the key of the language behind which ``selection`` stands."""
    return "project" if any(type(one) in PROJECTIONS.values() for one in selection) else "select"


def share_of(selection: Sequence[Selection]) -> float | None:
    """Return the number of values selected for each unit of a dense gradient; None where the gradient decides it."""
    shares = [getattr(one, "density", getattr(one, "share", None)) for one in selection]
    return None if None in shares else sum(share for share in shares if share is not None)


def words_of(made: Any, whole: bool = False) -> str:
    """Return ``sign(2048)``, ``top(0.01) by sampled(0.01)``: the words for ``made``, without seeds that are usual.

    Under ``whole``, the words have every argument.
    """
    name = getattr(made, "name", None) or _NAMES.get(type(made), type(made).__name__.lower())
    known = arguments_of(made)
    while known and not whole and known[-1].name == "seed" and made.seed == known[-1].default:
        known.pop()
    given = ", ".join(repr(getattr(made, field.name)) for field in known)
    by = [f" by {_by_text(getattr(made, field.name), whole)}" for field in fields(made) if _differs(made, field)]
    return "".join((str(name), f"({given})" if given else "", *by))


def _differs(made: Any, field: Field[Any]) -> bool:
    return "by" in field.metadata and getattr(made, field.name) != field.default


def _by_text(value: Any, whole: bool) -> str:
    return value if isinstance(value, str) else words_of(value, whole)


_NAMES = {made: name for table in (*TABLES.values(), ESTIMATORS) for name, made in table.items()}
