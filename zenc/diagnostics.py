"""The ids of all diagnostics, which are stable: ``docs/diagnostics.md`` documents each with a bad and a good text.

    DIAGNOSTICS = id -> (stage, meaning)                    # in the order of the stages

Each stage appends its own ids below, in a mapping of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_INSTALLATION = {
    "broken-installation": ("installation", "a directory of zenc's own files is not there"),
}

_SYNTAX = {
    "syntax": ("syntax", "the text is not in the language"),
    "empty-file": ("syntax", "the text declares nothing"),
    "not-text": ("syntax", "the file holds bytes that are no UTF-8 text"),
    "nesting": ("syntax", "the text nests deeper than anyone can read"),
    "number-range": ("syntax", "a number is too great"),
}

_LOAD = {
    "unreadable-file": ("load", "a file can't be read"),
    "missing-import": ("load", "an imported file does not exist"),
    "import-cycle": ("load", "a file imports itself, at once or by way of others"),
}

_SCHEME = {
    "no-scheme": ("scheme", "the file has no scheme"),
    "several-schemes": ("scheme", "the file has several schemes, and none was chosen"),
    "unknown-scheme": ("scheme", "the file has no scheme of that name"),
    "duplicate-name": ("scheme", "two schemes, or two schedules, have one name"),
    "duplicate-parameter": ("scheme", "two parameters have one name"),
    "unknown-key": ("scheme", "a key is none of those a scheme has"),
    "duplicate-key": ("scheme", "a key is there twice"),
    "missing-key": ("scheme", "a key that must be there is not"),
    "unknown-value": ("scheme", "a value is none of the choices of its key"),
    "wrong-value": ("scheme", "the words are known, but not in this place or order"),
    "wrong-arguments": ("scheme", "a word or a function has too many, too few or unknown arguments"),
    "wrong-type": ("scheme", "a number of another kind is needed"),
    "wrong-range": ("scheme", "a number lies outside what is allowed"),
    "unknown-parameter": ("scheme", "a value is given for a parameter that the scheme does not have"),
    "missing-parameter": ("scheme", "a parameter has neither a value nor a default"),
    "missing-phase": ("scheme", "a schedule has no push, or no pull"),
    "duplicate-phase": ("scheme", "a schedule has two blocks for one phase"),
    "unknown-name": ("scheme", "an expression uses a name that means nothing there"),
    "unknown-function": ("scheme", "an expression calls a function that does not exist"),
    "division-by-zero": ("scheme", "an expression divides by nought"),
    "send-outside-step": ("scheme", "a move is in no step"),
    "nested-step": ("scheme", "a step is inside a step"),
    "shadowed-name": ("scheme", "a name is already taken"),
    "unused-name": ("scheme", "a parameter or a let is used nowhere (warning)"),
    "no-effect": ("scheme", "an entry changes nothing (warning)"),
}

_KERNELS = {
    "unknown-target": ("build", "there are no templates for a target"),
    "unsafe-text": ("build", "a name or a number can't be written into generated code"),
    "compiler-missing": ("build", "there is no C++ compiler, or it does not answer"),
    "compile-failed": ("build", "the compiler refuses the generated code"),
    "build-timeout": ("build", "compiling, or waiting for a process that compiles, took too long"),
    "library-broken": ("build", "compiled kernels can't be loaded"),
    "wrong-abi": ("build", "compiled kernels belong to another version of zenc"),
    "cache-unsafe": ("cache", "others can write the cache of compiled kernels"),
    "cache-not-writable": ("cache", "the cache of compiled kernels is read-only or full"),
    "tensor-too-large": ("tensor", "a tensor has 2^62 values or more"),
    "unit-out-of-range": ("tensor", "an index of a sparse tensor lies outside its shape"),
    "out-of-memory": ("tensor", "there is no memory for a kernel's work space"),
    "corrupt-segment": ("synchronisation", "the bytes of a message are no segment"),
    "internal": ("internal", "a bug in zenc"),
}

DIAGNOSTICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **_INSTALLATION,
        **_SYNTAX,
        **_LOAD,
        **_SCHEME,
        **_KERNELS,
    }
)
