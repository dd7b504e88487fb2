"""Entries by their keys, and values: of balance the mapping of units to slots, of push and pull the wire format."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TypeAlias, TypeVar

from zenc.language.syntax import EntrySyntax, OptionSyntax, Value
from zenc.language.terms import Argument, Phrase, Word
from zenc.scheme.arguments import Environment, constant, constant_integer, integer_within, match_arguments
from zenc.scheme.collector import Collector, listed, unknown
from zenc.scheme.model import (
    BLOCKS,
    MOST_FUNCTIONS,
    PERMUTED_BLOCKS,
    Contiguous,
    Encoded,
    Format,
    HierarchicalHash,
    Holders,
    Mapping,
    Permutation,
)

K = TypeVar("K", EntrySyntax, OptionSyntax)

DEFAULT_SEED = 0x5EED
SEEDS, _SEED = range(2**64), "a seed is 0 to 2^64 - 1"
DEFAULT_HASH = HierarchicalHash(3, 2.0, 0.2, DEFAULT_SEED)
"""The hash of Zen's evaluation (OSDI 2025): k = 3, r1 = 2, r2 = 0.2."""
MOST_CELLS = 64.0
"""Most cells of either memory, for each unit of a call."""

_HELP = "write 'imbalanced', or 'balanced by' permutation, hierarchical_hash, holders, or encoded"


def resolve_balance(value: Value, environment: Environment, report: Collector) -> Mapping | None:
    """Resolve ``imbalanced`` or ``balanced by MAPPING``; None, with a diagnostic, for anything else."""
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


def _mapping(word: Word, environment: Environment, report: Collector) -> Mapping | None:
    read = MAPPINGS.get(word.name.text)
    if read is None:
        report.error("unknown-value", unknown("mapping", word.name.text, MAPPINGS), word.name.span)
        return None
    return read(word, environment, report)


def _permutation(word: Word, environment: Environment, report: Collector) -> Permutation | None:
    """Read ``permutation`` or ``permutation(SEED, BLOCK)``; both may be left out."""
    given = match_arguments(word, ("seed", "block"), report)
    seed = _integer(given.get("seed"), DEFAULT_SEED, SEEDS, _SEED, environment, report)
    choices = f"a block is one of {listed(map(str, PERMUTED_BLOCKS))} elements"
    block = _integer(given.get("block"), None, PERMUTED_BLOCKS, choices, environment, report)
    return None if seed is None or ("block" in given and block is None) else Permutation(seed, block)


def _hierarchical_hash(word: Word, environment: Environment, report: Collector) -> HierarchicalHash | None:
    """Read ``hierarchical_hash`` or ``hierarchical_hash(K, R1, R2, SEED)``; all may be left out."""
    given = match_arguments(word, ("k", "r1", "r2", "seed"), report)
    most = f"k is 1 to {MOST_FUNCTIONS} hash functions"
    k = _integer(given.get("k"), DEFAULT_HASH.k, range(1, MOST_FUNCTIONS + 1), most, environment, report)
    r1 = _cells("r1", given.get("r1"), DEFAULT_HASH.r1, environment, report)
    r2 = _cells("r2", given.get("r2"), DEFAULT_HASH.r2, environment, report)
    seed = _integer(given.get("seed"), DEFAULT_SEED, SEEDS, _SEED, environment, report)
    if k is None or r1 is None or r2 is None or seed is None:
        return None
    return HierarchicalHash(k, r1, r2, seed)


def _integer(
    given: Argument | None,
    default: int | None,
    allowed: Container[int],
    what: str,
    environment: Environment,
    report: Collector,
) -> int | None:
    return integer_within(given.value, given.span, allowed, what, environment, report) if given else default


def _cells(
    name: str, given: Argument | None, default: float, environment: Environment, report: Collector
) -> float | None:
    if given is None:
        return default
    cells = constant(given.value, environment, report)
    if cells is not None and not 0 <= cells <= MOST_CELLS:
        message = f"{name} is 0 to {MOST_CELLS:g} cells for each unit of a call, not {cells}"
        report.error("wrong-range", message, given.span)
        return None
    return None if cells is None else float(cells)


_Reader: TypeAlias = Callable[[Word, Environment, Collector], Mapping | None]


def _plain(mapping: Mapping) -> _Reader:
    """Return the reader of a word for ``mapping`` that takes no arguments."""

    def read(word: Word, _: Environment, report: Collector) -> Mapping:
        match_arguments(word, (), report)
        return mapping

    return read


MAPPINGS: dict[str, _Reader] = {
    "permutation": _permutation,
    "hierarchical_hash": _hierarchical_hash,
    "holders": _plain(Holders()),
    "encoded": _plain(Encoded()),
}
"""Words that may follow ``balanced by``, each with its reader."""


DEFAULT_BLOCK = 256

_NAMED = {str(format.value): format for format in Format if not format.block}
_OF_SIZE = {size: format for format, size in BLOCKS.items()}
NAMES = (*(name for name in _NAMED if name != "auto"), "block", "auto")


def resolve_format(key: str, word: Word, environment: Environment, report: Collector) -> Format | None:
    """Return the format that ``word`` names; None, with a diagnostic, where there is no such format."""
    name = word.name.text
    if name == "block":
        return _block_format(word, environment, report)
    if name not in _NAMED:
        report.error("unknown-value", unknown(f"{key} format", name, NAMES), word.name.span)
        return None
    match_arguments(word, (), report)
    return _NAMED[name]


def _block_format(word: Word, environment: Environment, report: Collector) -> Format | None:
    """Read ``block`` or ``block(SLOTS)``."""
    given = match_arguments(word, ("slots",), report).get("slots")
    if given is None:
        return _OF_SIZE[DEFAULT_BLOCK]
    size = constant_integer(given.value, environment, report)
    if size is None:
        return None
    if size not in _OF_SIZE:
        message = f"a block has a power of two of slots, 2 to {max(_OF_SIZE)}, and not {size}"
        report.error("wrong-range", message, given.span, help=_help(size))
        return None
    return _OF_SIZE[size]


def _help(size: int) -> str | None:
    if size == 1:
        return "blocks of one slot are what 'bitmap' sends"
    below = max((known for known in _OF_SIZE if known < size), default=None)
    above = min((known for known in _OF_SIZE if known > size), default=None)
    near = [f"block({known})" for known in (below, above) if known is not None]
    return f"write {' or '.join(near)}"


def by_key(entries: Sequence[K], keys: Sequence[str], report: Collector) -> dict[str, K]:
    """Return the entries by key, in the order of the text; report unknown keys and second entries of a key."""
    found: dict[str, K] = {}
    for entry in entries:
        key = entry.key.text
        if key not in keys:
            report.error("unknown-key", unknown("key", key, keys), entry.key.span)
        elif key in found:
            notes = (f"the other one: {found[key].key.span}",)
            report.error("duplicate-key", f"'{key}' is here twice", entry.key.span, notes=notes)
        else:
            found[key] = entry
    return found


def single_word(key: str, value: Value, report: Collector) -> Word | None:
    """Return the only word of ``value``; None, with a diagnostic, where it has more or is a schedule."""
    if isinstance(value, Phrase) and len(value.words) == 1:
        return value.words[0]
    what = "one word" if isinstance(value, Phrase) else "a word, and no schedule"
    report.error("wrong-value", f"the value of '{key}' is {what}", value.span)
    return None
