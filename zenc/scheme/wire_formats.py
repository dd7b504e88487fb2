"""The value of ``push`` and ``pull`` -> the wire format: a name, or ``block(K)``."""

from __future__ import annotations

from zenc.language.syntax import Word
from zenc.scheme.arguments import match_arguments
from zenc.scheme.collector import Collector, unknown
from zenc.scheme.constants import Environment, constant_integer
from zenc.scheme.model import BLOCKS, Format

DEFAULT_BLOCK = 256

_NAMED = {str(format.value): format for format in Format if not format.block}
_OF_SIZE = {size: format for format, size in BLOCKS.items()}
NAMES = (*(name for name in _NAMED if name != "auto"), "block", "auto")


def resolve_format(key: str, word: Word, environment: Environment, report: Collector) -> Format | None:
    """The format that ``word`` names; None, and a diagnostic, where it names none."""
    name = word.name.text
    if name == "block":
        return _block(word, environment, report)
    if name not in _NAMED:
        report.error("unknown-value", unknown(f"{key} format", name, NAMES), word.name.span)
        return None
    match_arguments(word, (), report)
    return _NAMED[name]


def _block(word: Word, environment: Environment, report: Collector) -> Format | None:
    """``block`` or ``block(SLOTS)``."""
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
