"""``zenc new``: a scheme to begin with, commented, or a copy of one that comes with zenc."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from zenc.cli.common import JsonOption, answer, locate, reporting
from zenc.errors import Diagnostic, SchemeError

EXAMPLES = """\b
Examples:
  zenc new mine.zen
  zenc new mine.zen --from holders
  zenc new mine.zen --from ../theirs.zen
"""

SUFFIX = ".zen"

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file to write; the scheme in it is called as the file is.")
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="SCHEME", help="Begin with this one: a file, or the name of a shipped scheme."),
]


def new(file: FileArgument, source: FromOption = None, json: JsonOption = False) -> None:
    """Write a scheme to begin with: it is complete, passes zenc check, and its comments say what can be chosen.

    Without a suffix the file gets .zen. A file that is there already is left as it is; the status is then 1.
    """
    from zenc.language.lexer import tables

    path = file if file.suffix or not file.name else file.with_suffix(SUFFIX)
    if not re.fullmatch(tables().terminals["NAME"], path.stem):
        rule = "letters, digits and _, no digit first, no word of the language"
        raise typer.BadParameter(f"a scheme can't be called {path.stem!r}: {rule}")
    with reporting(json):
        text = _text(path.stem, source)
        _create(path, text)
    said = f"wrote {path}, a scheme called {path.stem}\nnext: zenc check {path}, then zenc explain {path} --ranks 8"
    answer(json, {"file": str(path), "scheme": path.stem, "from": source}, said)


def _text(name: str, source: str | None) -> str:
    """Return the text of ``source``, or of the commented scheme, with its first scheme called ``name``.

    Raises:
        SchemeError: ``no-scheme`` without a scheme in it; and as reading and parsing do.
        typer.BadParameter: ``name`` has a meaning in it already, such as that of a candidate or a tier.
    """
    from zenc.common.resources import directory
    from zenc.language.files import load_file, read

    path = locate(source) if source else str(directory("templates") / "new" / f"mine{SUFFIX}")
    given, schemes = read(path).text, load_file(path).main.schemes
    if not schemes:
        raise SchemeError(Diagnostic("no-scheme", f"{path} has no scheme", help="`zenc list` shows schemes"))
    old, code = schemes[0].name.text, re.sub(r'#.*|"[^"\n]*"', "", given)
    if source and name != old and re.search(rf"\b{name}\b", code):
        raise typer.BadParameter(f"a copy of {source} can't be called {name!r}, since its text names that already")
    text = re.sub(rf"^(\s*scheme\s+){old}\b", rf"\g<1>{name}", given, count=1, flags=re.MULTILINE)
    return text if source else re.sub(rf"\bmine(?=\{SUFFIX}|\.svg|_alone)", name, text)


def _create(path: Path, text: str) -> None:
    """Write a file that is not there yet.

    Raises:
        SchemeError: it is there, or can't be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        message = f"there is already a {str(path)!r}, which is left as it is"
        raise SchemeError(Diagnostic("unwritable-file", message, help="choose another name, or remove it")) from None
    except OSError as problem:
        message = f"can't write {str(path)!r}: {problem.strerror or problem}"
        raise SchemeError(Diagnostic("unwritable-file", message)) from problem
