"""Compression of a scheme: its own entries, and those of the compressor that it names by ``compress``.

A compressor is one of this file, of an imported one, or one of ``schemes/compressors.zen``, in this order. A scheme may
have other entries beside it, but none that say the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zenc.errors import Span
from zenc.language.files import SourceFiles
from zenc.language.syntax import CompressSyntax, EntrySyntax
from zenc.language.terms import Parameter, Word
from zenc.scheme.arguments import Environment, bind_parameters, check_parameters, constant, match_arguments
from zenc.scheme.collector import Collector, unknown
from zenc.scheme.compression import Code, Feedback, Selection, Transform, Warmup
from zenc.scheme.compression_words import (
    NONE,
    OPTIONAL,
    is_alone,
    read_code,
    read_optional,
    read_projection,
    read_selection,
    split,
)
from zenc.scheme.values import by_key, single_word

COMPRESS = "compress"
COMPRESSION_KEYS = (COMPRESS, "transform", "select", "project", "merge", "reselect", "feedback", "warmup")
"""Keys of compression in a scheme."""
COMPRESSOR_KEYS = ("transform", "select", "project", "merge", "reselect", "code", "feedback", "warmup")
"""Keys of a compressor."""


@dataclass(frozen=True, slots=True)
class Compression:
    """Selections, codes and keepers, as entries say them. ``said`` has the place of each field that an entry says."""

    select: tuple[Selection, ...] = ()
    merge: tuple[Selection, ...] = ()
    reselect: tuple[Selection, ...] = ()
    push_code: Code | None = None
    pull_code: Code | None = None
    feedback: Feedback | None = None
    warmup: Warmup | None = None
    transform: Transform | None = None
    said: Mapping[str, Span | None] = field(default_factory=dict)

    def joined(self, other: Compression, at: Span | None, report: Collector) -> Compression:
        """Join this compression with ``other``, which is named ``at`` a place; report fields that both have."""
        for key in self.said.keys() & other.said.keys():
            message = f"'{_KEY.get(key, key)}' is said here, and by the compressor as well"
            notes = (f"the compressor: {other.said[key]}",)
            help = "leave one of them out, or write a compressor of your own"
            report.error("conflicting-compression", message, self.said[key], notes=notes, help=help)
        values = {key: getattr(other, key) for key in other.said if key not in self.said}
        return replace(self, **values, said={**dict.fromkeys(other.said, at), **self.said})


_KEY = {"push_code": "push", "pull_code": "pull"}
"""The key of a scheme that says a field, where it has another name."""


def read_compression(entries: Mapping[str, EntrySyntax], environment: Environment, report: Collector) -> Compression:
    """Read the compression in ``entries``, ``code`` included; report errors."""
    keys = ("transform", "select", "merge", "reselect", "feedback", "warmup")
    said = {key: entries[key].value.span for key in keys if key in entries}
    push, pull = _codes(entries["code"], environment, report) if "code" in entries else (None, None)
    push = push or _code_behind(entries.get("push"), environment, report)
    pull = pull or _code_behind(entries.get("pull"), environment, report)
    for field_, key, code in (("push_code", "push", push), ("pull_code", "pull", pull)):
        if code:
            said[field_] = entries[key if key in entries else "code"].value.span
    if "project" in entries:
        said.setdefault("select", entries["project"].value.span)

    def selected(key: str, read: Callable[..., tuple[Selection, ...]] = read_selection) -> tuple[Selection, ...]:
        return read(entries[key].value, environment, report) if key in entries else ()

    select = (*selected("select"), *selected("project", read_projection))
    told = {key: read_optional(key, entries[key].value, environment, report) for key in OPTIONAL if key in entries}
    return Compression(select, selected("merge"), selected("reselect"), push, pull, **told, said=said)


def _code_behind(entry: EntrySyntax | None, environment: Environment, report: Collector) -> Code | None:
    phrases = split(entry.value, "as") if entry else []
    if len(phrases) > 2:
        report.error("wrong-value", "one code may follow a format", phrases[2].span)
    return read_code(phrases[1], environment, report) if len(phrases) > 1 else None


def _codes(entry: EntrySyntax, environment: Environment, report: Collector) -> tuple[Code | None, Code | None]:
    """Read ``A`` for both phases, or ``A then B`` for push and pull; None stands for ``none``, values as they are."""
    phrases = split(entry.value, "then")
    if not 1 <= len(phrases) <= 2:
        report.error("wrong-value", "a code is one for both phases, or two: 'A then B'", entry.value.span)
        return None, None
    codes = [
        None if is_alone(phrase, NONE, report) else read_code(phrase, environment, report, (NONE,))
        for phrase in phrases
    ]
    return codes[0], codes[-1]


def resolve_compressor(
    entry: EntrySyntax, program: SourceFiles, environment: Environment, report: Collector
) -> Compression | None:
    """Return the compression of the compressor that ``entry`` names; None, with a diagnostic, in case of an error."""
    word = single_word(COMPRESS, entry.value, report)
    known = {each.name.text: each for file in reversed(program.files) for each in file.compressors}
    if word is None:
        return None
    if word.name.text not in known:
        report.error("unknown-value", unknown("compressor", word.name.text, known), word.name.span)
        return None
    compressor = known[word.name.text]
    given = _given(word, compressor.parameters, environment, report)
    if given is None:
        return None
    inner = Collector()  # warnings about a compressor are for those who write it
    own = bind_parameters(compressor, given, inner)
    found = read_compression(_entries(compressor, inner), own, inner)
    report.found += [diagnostic for diagnostic in inner.found if diagnostic.severity == "error"]
    return None if inner.failed else found


def _given(
    word: Word, parameters: Sequence[Parameter], environment: Environment, report: Collector
) -> dict[str, int | float] | None:
    given = match_arguments(word, [parameter.name.text for parameter in parameters], report)
    values = {name: constant(argument.value, environment, report) for name, argument in given.items()}
    missing = [p.name.text for p in parameters if p.default is None and p.name.text not in given]
    for name in missing:
        report.error("wrong-arguments", f"'{word.name.text}' needs a value for '{name}'", word.span)
    told = {name: value for name, value in values.items() if value is not None}
    return told if len(told) == len(values) and not missing else None


def check_compressors(program: SourceFiles, report: Collector) -> None:
    """Report errors in the compressors of the main file, whether they are used or not."""
    mine = program.main.compressors
    report.twins("compressor", ((each.name.text, each.name.span) for each in mine))
    for compressor in mine:
        check_parameters(compressor.parameters, report)
        values = {
            parameter.name.text: None
            if parameter.default is None
            else constant(parameter.default, Environment(), report)
            for parameter in compressor.parameters
        }
        environment = Environment(values)
        read_compression(_entries(compressor, report), environment, report)
        if not report.failed:
            report.unused(compressor.parameters, environment.used)


def _entries(compressor: CompressSyntax, report: Collector) -> dict[str, EntrySyntax]:
    return by_key(compressor.entries, COMPRESSOR_KEYS, report)
