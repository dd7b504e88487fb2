"""``zenc fmt``: schemes in canonical layout."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from zenc.cli.common import JsonOption, print_bytes, print_json, reporting, show_diagnostics
from zenc.common.resources import write_text
from zenc.common.wording import size_text
from zenc.errors import Diagnostic, Source, ZencError

EXAMPLES = """\b
Examples:
  zenc fmt mine.zen
  zenc fmt --check schemes/*.zen
  zenc fmt - < mine.zen
"""

STDIN = "-"

FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE", help="Files to lay out; - is standard input, to standard output.")
]
CheckOption = Annotated[bool, typer.Option("--check", help="Write nothing; status 1 if a file would change.")]


@dataclass(frozen=True, slots=True)
class FormattedText:
    """A file before and after formatting."""

    file: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Return whether the file is not in canonical layout."""
        return self.before != self.after

    def to_json(self) -> dict[str, object]:
        """Return JSON data; the text is there for standard input alone."""
        text = {"text": self.after} if self.file == STDIN else {}
        return {"file": self.file, "changed": self.changed, **text}


def fmt(files: FilesArgument, check: CheckOption = False, json: JsonOption = False) -> None:
    """Lay schemes out in the one layout that all share.

    Spaces, line ends and empty lines change; words, comments and meaning stay. A file that is laid out already is not
    touched, and one that does not parse is left as it is, with diagnostics on standard error.
    """
    done: list[FormattedText] = []
    problems: list[Diagnostic] = []
    with reporting(json):
        for file in files:
            try:
                done.append(_lay_out(file, write=not check))
            except ZencError as error:
                problems += error.diagnostics
    show_diagnostics(problems)
    ok = not problems and not (check and any(layout.changed for layout in done))
    if json:
        found = [problem.to_json() for problem in problems]
        print_json({"ok": ok, "files": [layout.to_json() for layout in done], "diagnostics": found})
    else:
        _show(done, check)
    if not ok:
        raise SystemExit(1)


def _show(done: list[FormattedText], check: bool) -> None:
    for layout in done:
        if layout.file == STDIN and not check:
            print_bytes(layout.after.encode())
        elif layout.changed:
            print(f"{'would change' if check else 'changed'} {layout.file}")


def _lay_out(file: str, write: bool) -> FormattedText:
    from zenc.language.files import read
    from zenc.language.formatter import format_text

    source = _read_stdin() if file == STDIN else read(file)
    layout = FormattedText(file, source.text, format_text(source.text, source.name))
    if write and layout.changed and file != STDIN:
        write_text(file, layout.after, "zenc fmt - writes no file")
    return layout


def _read_stdin() -> Source:
    from zenc.language.files import MOST_BYTES, decode

    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ZencError(Diagnostic("unreadable-file", f"standard input is longer than {size_text(MOST_BYTES)}"))
    return decode("<stdin>", data)
