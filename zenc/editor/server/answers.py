"""Hover texts and completions for a position in a text, with the words of the language as the manual explains them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from lsprotocol import types

from zenc.assist.manual import pages
from zenc.averaging.model import WORDS
from zenc.averaging.resolve import AVERAGING_KEYS, DIVISIONS
from zenc.common.resources import directory
from zenc.editor.server.known import Document
from zenc.editor.server.symbols import Symbol
from zenc.language.files import COMPRESSORS, read, shipped_names
from zenc.language.lexer import tables
from zenc.language.parse import parse
from zenc.language.recovery import DECLARATIONS, DECLARED, GROWN, STATEMENTS
from zenc.language.schedule import BUILTIN_NAMES, FUNCTIONS
from zenc.scheme.compression import CODERS, CODES, ESTIMATORS, FEEDBACKS, PROJECTIONS, SELECTIONS, TRANSFORMS, WARMUPS
from zenc.scheme.compression_words import ALL, NONE, arguments_of
from zenc.scheme.compressors import COMPRESSOR_KEYS
from zenc.scheme.model import SETTINGS, Aggregation, Format, Partition, Unit
from zenc.scheme.resolve import KEYS
from zenc.scheme.units import UNITS
from zenc.scheme.values import MAPPINGS
from zenc.strategy.model import DEVICES
from zenc.strategy.resolve import GROUPS, STRATEGY_KEYS
from zenc.topology.shapes import BUILDERS, signature, summary

PAGES = ("language", "topologies")
_ROW = re.compile(r"^\| (.+?) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_VALUE = re.compile(r"`(?:balanced by |A )?([a-z_]\w*)[^`]*`(?: with or without `[^`]*`)?: ([^;|]+)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[A-Za-z_]\w*")


@cache
def glossary() -> dict[str, str]:
    """Return the manual's meaning of each word, in Markdown.

    It is the first row that starts with the word, otherwise one that has it; a value's is the row of its key, or a part
    of that.
    """
    rows = [row for name in PAGES for row in _rows(pages()[name].text)]
    found: dict[str, str] = {}
    for kind in (_first, _keywords, _values, _named):
        for what, meaning in rows:
            for word, text in kind(what, meaning):
                found.setdefault(word, _LINK.sub(r"\1", text).strip())
    return found


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """Yield the subject of each row that has code in it, and its meaning."""
    for row in _ROW.finditer(text):
        what, *rest = re.split(r"(?<!\\) \| ", row[1])
        if rest and rest[0].strip("- ") and _CODE.search(what):
            yield what, rest[0]


def _first(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    for code in _CODE.findall(what):
        if word := _WORD.search(code):
            yield word[0], f"`{code}`: {meaning}"


def _keywords(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    for code in _CODE.findall(what):
        yield from ((word, f"`{code}`: {meaning}") for word in _WORD.findall(code) if word in tables().words)


def _values(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    yield from ((word, f"`{word}`: {text}") for word, text in _VALUE.findall(meaning))


def _named(what: str, meaning: str) -> Iterator[tuple[str, str]]:
    for code in _CODE.findall(meaning):
        yield from ((word, f"{what}: {meaning}") for word in _WORD.findall(code) if word.islower())


_KINDS = types.CompletionItemKind
_FORMATS = tuple(dict.fromkeys(format.value.partition("(")[0] for format in Format))
_VALUES: dict[str, tuple[str, ...]] = {
    "aggregation": tuple(value.value for value in Aggregation),
    "partition": tuple(value.value for value in Partition),
    "balance": ("imbalanced", *(f"balanced by {mapping}" for mapping in MAPPINGS)),
    "push": _FORMATS,
    "pull": _FORMATS,
    "unit": tuple(value.value for value in Unit),
    "select": (ALL, *SELECTIONS),
    "project": (NONE, *PROJECTIONS),
    "merge": (ALL, *SELECTIONS),
    "transform": (NONE, *TRANSFORMS),
    "reselect": (ALL, *SELECTIONS),
    "code": (NONE, *CODES),
    "feedback": (NONE, *FEEDBACKS),
    "warmup": (NONE, *WARMUPS),
}
_AFTER_BY = {"balance": tuple(MAPPINGS), **dict.fromkeys(("select", "merge", "reselect"), tuple(ESTIMATORS))}
"""Words that may follow ``by`` in the value of a key; after all other keys those of codes may."""
_WITH_ARGUMENTS: Mapping[str, Any] = {
    **SELECTIONS,
    **PROJECTIONS,
    **TRANSFORMS,
    **ESTIMATORS,
    **CODES,
    **FEEDBACKS,
    **WARMUPS,
} | {word: made for words in WORDS.values() for word, made in words.items()}
_LINE = re.compile(r"(\w+)\s*:\s*(?:[\w\s(),=.]*\b(?:by|then|as)\s+)?\w*$")


def explain(document: Document, offset: int) -> str | None:
    """Return Markdown about the declared name, or the word of the language, at ``offset``; None without one."""
    found = document.symbol(offset)
    if found:
        return _about(found[0])
    word = document.word(offset)
    if word in BUILDERS:
        return f"```zen\nlike {signature(word)}\n```\n{summary(BUILDERS[word])}"
    return glossary().get(word)


def _about(symbol: Symbol) -> str:
    if symbol.kind in ("parameter", "variable"):
        return f"{symbol.kind} `{symbol.name}` {symbol.doc}".rstrip()
    parameters = f"({', '.join(symbol.parameters)})" if symbol.parameters else ""
    return f"```zen\n{symbol.kind} {symbol.name}{parameters}\n```\n{symbol.doc}".rstrip()


def complete(document: Document, offset: int) -> list[types.CompletionItem]:
    """Return completions at ``offset``, by the braces and the key before it; the text need not parse."""
    return list({item.label: item for item in _completions(document, _bare(document.text[:offset]))}.values())


def _completions(document: Document, before: str) -> Iterator[types.CompletionItem]:
    if before.count('"') % 2:
        return
    around = _around(before)
    inside = around[-1] if around else ""
    if re.search(r"[0-9]\s+\w*$", before) and "topology" in around:
        yield from _items([unit for units in UNITS.values() for unit in units], _KINDS.Unit)
    elif inside == "":
        yield from _items(DECLARATIONS, _KINDS.Keyword)
    elif inside == "strategy":
        yield from _in_strategy(document, before)
    elif inside == "averaging":
        yield from _in_averaging(document, before)
    elif inside in ("scheme", "compress"):
        yield from _in_scheme(document, before, COMPRESSOR_KEYS if inside == "compress" else KEYS)
    elif inside == "schedule":
        yield from _items(("push", "pull", "trees"), _KINDS.Keyword)
    elif "topology" in around:
        yield from _in_topology(document, before)
    else:
        grown = {"trees": GROWN, "tree": ("branch",)}
        yield from _in_block(document, before, grown.get(inside, STATEMENTS))


def _in_strategy(document: Document, before: str) -> Iterator[types.CompletionItem]:
    line = before.rpartition("\n")[2]
    key = _LINE.search(line)
    if re.search(r"\bfrom\s*\[[^\]]*$", before) or re.search(r"(?:''|\w|\bothers)\s*:\s*\w*$", line):
        if key and key[1] in STRATEGY_KEYS:
            yield from _items(GROUPS, _KINDS.EnumMember)
            return
        yield from _symbols(document, "scheme")
        yield from _items(shipped_names(), _KINDS.Module)
        yield from _items(["choose from"], _KINDS.Keyword)
    elif re.search(r"\bchoose\s*\([^)]*$", before):
        yield from _items(SETTINGS, _KINDS.Property)
    elif re.search(r"\bon\s+\w*$", line):
        yield from _items(DEVICES, _KINDS.EnumMember)
    elif re.search(r"[0-9]\s+\w*$", line):
        yield from _items(UNITS["memory"], _KINDS.Unit)
    elif re.search(r"\b\w+\([^)]*$", line):
        yield from _symbols(document, "parameter")
    elif re.search(r"\btensors\s+\w*$", line):
        yield from _items(["above"], _KINDS.Keyword)
    else:
        yield from _items(STRATEGY_KEYS, _KINDS.Property, behind=": ")
        yield from _items(("tensors", "others", "on"), _KINDS.Keyword)


def _in_averaging(document: Document, before: str) -> Iterator[types.CompletionItem]:
    line = before.rpartition("\n")[2]
    key = _LINE.search(line)
    if given := re.search(r"\b(?:(\w+)\s*\(|groups\b[^,]*\[)[^)\]]*$", line):
        yield from _given(document, str(given[1]))
    elif re.search(r"\balternate\s*\[[^{}:]*$", before):
        yield from _items(DIVISIONS, _KINDS.EnumMember)
        yield from _items(("inside", "across", "groups"), _KINDS.Keyword)
    elif re.search(r"\bsums\s*:\s*\w*$", line):
        yield from _symbols(document, "scheme")
        yield from _items(shipped_names(), _KINDS.Module)
    elif key and key[1] in WORDS:
        yield from _items(WORDS[key[1]], _KINDS.EnumMember)
    else:
        yield from _items(AVERAGING_KEYS, _KINDS.Property, behind=": ")
        yield from _items(["alternate"], _KINDS.Keyword)


def _given(document: Document, word: str) -> Iterator[types.CompletionItem]:
    yield from _symbols(document, "parameter")
    if word in _WITH_ARGUMENTS:
        names = (field.name for field in arguments_of(_WITH_ARGUMENTS[word]))
        yield from _items(names, _KINDS.Property, behind=" = ")


def _in_scheme(document: Document, before: str, keys: Iterable[str]) -> Iterator[types.CompletionItem]:
    line = before.rpartition("\n")[2]
    key = _LINE.search(line)
    if re.search(r"\btier\s+\w+[^:]*:\s*\w*$|\bfrom\s*\[[^\]]*$", before):
        yield from _symbols(document, "scheme")
        yield from _items(shipped_names(), _KINDS.Module)
    elif re.search(r"\bchoose\s*\([^)]*$", before):
        yield from _items(SETTINGS, _KINDS.Property)
    elif given := re.search(r"\b(\w+)\([^)]*$", line):
        yield from _given(document, given[1])
    elif key and key[1] in ("communication", "announce"):
        yield from _symbols(document, "schedule")
        yield from _items(["schedule"], _KINDS.Keyword)
    elif key and key[1] == "compress":
        yield from _symbols(document, "compressor")
        yield from _items(shipped_compressors(), _KINDS.Module)
    elif key and key[1] in _VALUES:
        yield from _items(_words_for(key[1], line), _KINDS.EnumMember)
    else:
        yield from _items(keys, _KINDS.Property, behind=": ")
        yield from _items(("tier", "choose from") if keys is KEYS else (), _KINDS.Keyword)


def _words_for(key: str, line: str) -> Iterable[str]:
    if re.search(r"\bby\s+\w*$", line):
        return _AFTER_BY.get(key, CODERS)
    return CODES if re.search(r"\bas\s+\w*$", line) else _VALUES[key]


@cache
def shipped_compressors() -> tuple[str, ...]:
    """Return the names of the compressors that come with zenc."""
    text = read(directory("schemes") / COMPRESSORS)
    return tuple(compressor.name.text for compressor in parse(text).compressors)


def _in_topology(document: Document, before: str) -> Iterator[types.CompletionItem]:
    if re.search(r"\blike\s+\w*$", before):
        for name, fill in BUILDERS.items():
            yield types.CompletionItem(name, kind=_KINDS.Function, detail=signature(name), documentation=summary(fill))
        yield from _symbols(document, "topology")
    else:
        yield from _items(DECLARED, _KINDS.Keyword)
        yield from _symbols(document, "parameter", "variable")


def _in_block(document: Document, before: str, statements: Iterable[str]) -> Iterator[types.CompletionItem]:
    if re.search(r"\b(?:send|tree)\s+\w*$", before):
        yield from _items(("all", "part", "parts"), _KINDS.Keyword)
        return
    if re.search(r"[{}]\s*\w*$|\n\s*\w*$", before):
        yield from _items(statements, _KINDS.Keyword)
    yield from _items(BUILTIN_NAMES, _KINDS.Variable)
    yield from _items(FUNCTIONS, _KINDS.Function)
    yield from _symbols(document, "parameter", "variable")
    if re.search(r"\bsend\b[^{}]*$", before):
        yield from _items(("to", "of", "where"), _KINDS.Keyword)


def _symbols(document: Document, *kinds: str) -> Iterator[types.CompletionItem]:
    """Yield names of the whole program that can be used anywhere; parameters and variables of the text itself alone."""
    of_symbol = {
        "scheme": _KINDS.Module,
        "strategy": _KINDS.Module,
        "averaging": _KINDS.Module,
        "schedule": _KINDS.Function,
        "compressor": _KINDS.Module,
        "topology": _KINDS.Struct,
    }
    for symbol in document.symbols:
        own = symbol.declared.source.name == str(document.path)
        if symbol.kind in kinds and (own or symbol.kind in of_symbol):
            kind = of_symbol.get(symbol.kind, _KINDS.Variable)
            yield types.CompletionItem(symbol.name, kind=kind, detail=symbol.kind, documentation=symbol.doc or None)


def _items(names: Iterable[str], kind: types.CompletionItemKind, behind: str = "") -> Iterator[types.CompletionItem]:
    for name in names:
        documentation = glossary().get(name.split()[-1])
        markup = types.MarkupContent(types.MarkupKind.Markdown, documentation) if documentation else None
        yield types.CompletionItem(name, kind=kind, documentation=markup, insert_text=f"{name}{behind}")


def _bare(text: str) -> str:
    """Return ``text`` without comments and whole strings, so that braces and words in them count for nothing."""
    return re.sub(r'"[^"]*"|#[^\n]*', lambda found: "" if found[0].startswith("#") else "''", text)


def _around(before: str) -> list[str]:
    """Return the words of the blocks that are open at the end of ``before``, outermost first."""
    opened: list[str] = []
    start = 0
    for brace in re.finditer(r"[{}]", before):
        if brace[0] == "}":
            opened = opened[:-1]
        else:
            words = re.findall(
                r"\b(?:scheme|schedule|compress|strategy|averaging|topology|push|pull|trees?|step|for|if|else)\b",
                before[start : brace.start()],
            )
            opened.append(words[-1] if words else "?")
        start = brace.end()
    return opened
