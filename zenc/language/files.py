"""Files and what they import -> a program.

SourceFiles = main: File, files: File*              # files[0] is main; then what it imports, prelude last
                                                    # before it the shipped compressors, where a scheme compresses
              shipped: SourceFiles*                 # shipped schemes that tiers and choices name
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from zenc.common.resources import directory
from zenc.common.untrusted import read_bytes
from zenc.common.wording import size_text
from zenc.errors import Diagnostic, SchemeError, SchemeSyntaxError, Source, Span, ZencError, raise_if_any
from zenc.language.parse import DEEPEST, parse
from zenc.language.syntax import File, Import

PRELUDE = "patterns.zen"
"""The shipped schedules, which every program imports without saying so."""
COMPRESSORS = "compressors.zen"
"""The shipped compressors, which every program with a ``compress`` entry imports without saying so."""
STRATEGIES = "strategies"
"""The folder of shipped strategies, beside the shipped schemes."""
AVERAGINGS = "averagings"
"""The folder of shipped averagings."""
LIBRARIES = (PRELUDE, COMPRESSORS)
"""Files beside the shipped schemes that hold none."""

MOST_BYTES, MOST_IMPORTED = 400_000, 100_000
"""Upper bounds on the bytes of a text, and of all that it imports together; the longest of zenc's own has 6 kB."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """A file and all that it imports, each once."""

    main: File
    files: tuple[File, ...]
    shipped: tuple[SourceFiles, ...] = ()
    """The shipped schemes that tiers and choices name and no file defines, each with names of its own."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The texts of all of it, each once."""
        texts = [file.source for file in self.files]
        texts += [source for program in self.shipped for source in program.sources]
        return tuple({source.name: source for source in reversed(texts)}.values())[::-1]


def load_file(path: str | Path) -> SourceFiles:
    """Return the program whose main file is at ``path``.

    Raises:
        SchemeSyntaxError: with all syntax errors of all its files.
        SchemeError: if a file can't be read, or imports one that is not there, or itself.
    """
    where = Path(path)
    if where in (Path(where.stem), Path("schemes") / where.name) and not os.path.exists(where):
        message = f"'{where}' is neither a file nor a scheme that comes with zenc"
        raise SchemeError(Diagnostic("unreadable-file", message, help=near_name(where)))
    return _Loader().load(read(where), where)


def load_text(text: str, name: str = "<text>", path: Path | None = None) -> SourceFiles:
    """Return the program whose main file is ``text``; imports are sought beside ``path``, or in the current folder.

    Raises:
        SchemeSyntaxError: with all syntax errors of all its files.
        SchemeError: an import is not found.
    """
    return _Loader().load(Source(name, text), path)


def decode(name: str, data: bytes, path: str | None = None) -> Source:
    """Return ``data`` as a text, without a byte order mark; ``path`` is as in ``Source``.

    Raises:
        SchemeSyntaxError: it is no UTF-8 text.
    """
    try:
        return Source(name, data.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        source = Source(name, data[: error.start].decode("utf-8", "replace") + "\N{REPLACEMENT CHARACTER}", path)
        where = Span(source, len(source.text) - 1, len(source.text))
        message = f"{name} is no UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        raise SchemeSyntaxError(Diagnostic("not-text", message, where)) from error


@dataclass
class _Loader:
    files: dict[Path | None, File] = field(default_factory=dict)
    problems: list[ZencError] = field(default_factory=list)
    imported: int = 0
    """The characters of all imported texts."""

    def load(self, source: Source, path: Path | None) -> SourceFiles:
        self._add(source, path, (path.resolve(),) if path else ())
        for kind in (SchemeSyntaxError, SchemeError):  # a file that does not parse says nothing sure about its imports
            raise_if_any(kind, [d for error in self.problems if isinstance(error, kind) for d in error.diagnostics])
        schemes = (scheme for file in self.files.values() for scheme in file.schemes)
        compresses = any("compress" in {entry.key.text for entry in scheme.entries} for scheme in schemes)
        for library in (COMPRESSORS, PRELUDE) if compresses else (PRELUDE,):
            place = directory("schemes") / library
            if place.resolve() not in self.files:
                self.files[place.resolve()] = _parse_library(read(place))
        files = tuple(self.files.values())
        return SourceFiles(files[0], files, _shipped(files))

    def _add(self, source: Source, path: Path | None, chain: tuple[Path, ...]) -> None:
        try:
            file = parse(source)
        except SchemeSyntaxError as error:
            self.problems.append(error)
            return
        self.files[path.resolve() if path else None] = file
        for statement in file.imports:
            try:
                self._follow(statement, path, chain)
            except ZencError as error:
                self.problems.append(error)

    def _follow(self, statement: Import, importer: Path | None, chain: tuple[Path, ...]) -> None:
        path = _find(statement, importer.parent if importer else Path())
        key = path.resolve()
        if key in chain:
            names = " -> ".join(p.name for p in (*chain[chain.index(key) :], key))
            message = f"'{statement.path}' is imported by itself: {names}"
            raise SchemeError(Diagnostic("import-cycle", message, statement.span))
        if len(chain) > DEEPEST:
            message = f"imports nest at most {DEEPEST} files deep"
            raise SchemeError(Diagnostic("nesting", message, statement.span, help="import it from an earlier file"))
        if key not in self.files:
            source = read(path, statement.span)
            self.imported += len(source.text)
            if self.imported > MOST_IMPORTED:
                message = f"this text imports more than {size_text(MOST_IMPORTED)}"
                raise SchemeError(Diagnostic("unreadable-file", message, statement.span, help="import less of it"))
            self._add(source, path, (*chain, key))


def near_name(name: str | os.PathLike[str]) -> str:
    """Return the help for a ``name`` that is neither a file nor a shipped scheme."""
    near = get_close_matches(Path(name).stem, [*shipped_names(), *shipped_in(STRATEGIES), *shipped_in(AVERAGINGS)], n=1)
    return f"did you mean '{near[0]}'?" if near else "`zenc list` shows those that come with zenc"


def shipped_names() -> list[str]:
    """Return the names of the shipped schemes: those of their files."""
    return sorted(path.stem for path in directory("schemes").glob("*.zen") if path.name not in LIBRARIES)


def shipped_in(folder: str) -> list[str]:
    """Return the names of the shipped files in a ``folder`` beside the schemes: ``STRATEGIES`` or ``AVERAGINGS``."""
    return sorted(path.stem for path in (directory("schemes") / folder).glob("*.zen"))


def read_program(what: str | os.PathLike[str]) -> SourceFiles:
    """Return the parsed text of a file or of what comes with zenc, or a text itself; raises SchemeError."""
    is_text = isinstance(what, str) and "{" in what and not os.path.exists(what)
    return load_text(what) if isinstance(what, str) and is_text else load_file(locate(what))


def locate(name: str | os.PathLike[str]) -> Path:
    """Return the file that ``name`` means: a path, or a shipped file where there is no such path.

    A shipped file is ``balanced``, and also ``schemes/balanced.zen``, as a checkout has it; or one of a strategy or an
    averaging, such as ``merged`` and ``schemes/strategies/merged.zen``. Where ``name`` is neither, the path comes back
    as it is. Raises SchemeError (``unreadable-file``) for anything but a path.
    """
    if not isinstance(name, (str, os.PathLike)):
        message = f"a scheme is a name, a path or an artifact, and this is of class {type(name).__name__}: {name!r:.60}"
        raise SchemeError(Diagnostic("unreadable-file", message, help="`zenc list` has the names"))
    path = Path(name)
    if os.path.exists(path):
        return path
    for folder in (Path(), Path(STRATEGIES), Path(AVERAGINGS)):
        known = directory("schemes") / folder / f"{path.stem}.zen"
        if path in (Path(path.stem), Path("schemes") / folder / known.name) and os.path.isfile(known):
            return known
    return path


def _shipped(files: tuple[File, ...]) -> tuple[SourceFiles, ...]:
    schemes = [scheme for file in files for scheme in file.schemes]
    named = [tier.scheme for scheme in schemes for tier in scheme.tiers]
    named += [word for scheme in schemes for choice in scheme.choices for word in choice.candidates]
    named += [word for file in files for strategy in file.strategies for word in strategy.words]
    named += [word for file in files for averaging in file.averagings for word in averaging.words]
    wanted = dict.fromkeys(word.name.text for word in named)
    missing = [name for name in wanted if name not in {scheme.name.text for scheme in schemes}]
    known = set(shipped_names()) if missing else set()
    return tuple(load_file(directory("schemes") / f"{name}.zen") for name in missing if name in known)


_parse_library = lru_cache(maxsize=len(LIBRARIES))(parse)
"""The parser of the shipped libraries, each read once; they import nothing."""


def _find(statement: Import, beside: Path) -> Path:
    candidates = [beside / statement.path, directory("schemes") / statement.path]
    for path in candidates:
        if os.path.isfile(path):  # unlike Path.is_file, False also for a path that can't be
            return path
    message = f"there is no file '{statement.path}' to import"
    notes = tuple(f"not in {path.parent}" for path in candidates)
    raise SchemeError(Diagnostic("missing-import", message, statement.span, notes=notes))


def read(path: str | Path, imported_at: Span | None = None) -> Source:
    """Return the text of the file at ``path``; ``imported_at`` is the place of the import that names it.

    Raises:
        SchemeSyntaxError: it is no UTF-8 text.
        SchemeError: it can't be read.
    """
    path = Path(path)
    try:
        data = read_bytes(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f"can't read {str(path)!r}: {reason}"
        raise SchemeError(Diagnostic("unreadable-file", message, imported_at)) from error
    shipped, real = directory("schemes").resolve(), path.resolve()
    if real.parent in (
        shipped,
        shipped / STRATEGIES,
        shipped / AVERAGINGS,
    ):  # called the same in every installation, so that plans are
        return decode(f"{shipped.name}/{real.relative_to(shipped).as_posix()}", data, str(real))
    return decode(str(path), data)
