"""``zenc lsp``: the language server, for editors."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from zenc.cli.common import JsonOption, answer, reporting
from zenc.errors import Diagnostic, ZencError

EXAMPLES = """\b
Examples:
  zenc lsp                  what an editor starts for .zen files; it speaks on standard input and output
  zenc lsp --extension      the folder of the extension for Visual Studio Code
"""


def lsp(
    extension: bool = typer.Option(False, "--extension", help="Print where the extension for VS Code lies."),
    json: JsonOption = False,
) -> None:
    """Serve editors: errors while typing, hover, completion, definitions, rename and layout.

    It speaks the Language Server Protocol on standard input and output, so it is started by an editor and not by hand.
    It needs pygls: pip install 'zenc[lsp]'. Colours come from the extension's TextMate grammar.
    """
    with reporting(json):
        if not extension:
            _serve()
            return
        from zenc.common.resources import directory

        where = str(directory("grammar") / "vscode")
    answer(json, {"extension": where}, where)


def _serve() -> None:
    if find_spec("pygls") is None:
        message = "the language server needs pygls, which is not installed"
        raise ZencError(Diagnostic("editor-support-missing", message, help="pip install 'zenc[lsp]'"))
    from zenc.editor.server.serve import make_server

    make_server().start_io()
