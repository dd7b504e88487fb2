"""The program ``zenc``: one file a verb, with its EXAMPLES; common parts of verbs are in ``common`` and ``given``.

Exit statuses: 0 all is well, 1 something was found wrong (diagnostics on standard error), 2 the command line is wrong.
Nothing heavy is imported before a verb needs it, so that ``zenc --help`` answers at once.
"""

from __future__ import annotations

import io
import os
import re
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from zenc.cli.advise import advise
from zenc.cli.assist.doctor import doctor
from zenc.cli.assist.fmt import fmt
from zenc.cli.assist.help import help_
from zenc.cli.assist.lsp import lsp
from zenc.cli.assist.new import new
from zenc.cli.cache import cache
from zenc.cli.calibrate import calibrate
from zenc.cli.check import check
from zenc.cli.common import as_terminal_text, nowhere, reporting
from zenc.cli.compile import compile_
from zenc.cli.draw import draw
from zenc.cli.explain import explain
from zenc.cli.lab import lab
from zenc.cli.list import list_
from zenc.cli.profile import profile
from zenc.cli.report import report
from zenc.cli.simulate import simulate
from zenc.cli.synthesize import synthesize
from zenc.cli.topo import topo
from zenc.cli.tune import tune
from zenc.common.environment import ensure_sound

_HELP = """A compiler for gradient synchronisation schemes.

A scheme is a short text that says how data-parallel workers sum their gradients. zenc proves that it sums every
contribution exactly once and can't deadlock, says what it costs, and compiles it for PyTorch.

\b
  zenc doctor                        does this machine have what zenc needs?
  zenc help unknown-key              a diagnostic's page, or a page of the manual
  zenc new mine.zen                  a commented scheme to begin with
  zenc list                          the schemes that come with zenc
  zenc check mine.zen                is my scheme right?
  zenc explain balanced --ranks 8    who sends what to whom, how many bytes
  zenc draw balanced -o balanced.svg the same as a picture
  zenc advise --profile model.json   is zenc worth it for my model?
  zenc simulate balanced sparcml     which is faster, on how many ranks you like
  zenc report balanced -o out.html   all of that on one page, beside what was measured
  zenc calibrate -o here.json        measure this cluster, for zenc simulate
  zenc compile auto -o out           a directory that zenc.attach() takes
  zenc tune --ranks 8 --density 0.01 which scheme is the fastest here
  zenc synthesize box.txt -o box.zen a scheme made for this cluster, near its bound
  zenc lab --hosts 4 train.py        run a training over slow links of this machine
  zenc fmt mine.zen                  lay it out as everyone does
  zenc lsp                           errors, hover and completion in your editor
  zenc topo show 'dgx(4)'            a cluster: its ranks, switches and links
  zenc profile show model.json       how sparse gradients are, and how ranks overlap

A SCHEME is a file, or the name of a scheme that comes with zenc. In a training script:

\b
  handle = zenc.attach(ddp_model, "auto")
"""

_PLAIN = (
    (r"Value error, ", ""),
    (r"(Input should be a valid|Unable to parse input string as an) integer.*", "it takes a whole number"),
    (r"Input should be a valid number.*", "it takes a number"),
    (r"Input should be greater than or equal to ", "it takes at least "),
    (r"Input should be less than or equal to ", "it takes at most "),
    (r"Input should be ", "it takes "),
)
"""Beginnings of what typer says of a value, in the words of pydantic -> plain words."""


class Verbs(TyperGroup):
    """The verbs of the program; errors of an option are reported in plain words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb of ``ctx``."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            for start, words in _PLAIN:
                error.message = re.sub(f"^{start}", words, error.message, flags=re.DOTALL)
            raise


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text wraps paragraphs and keeps examples as they are written
    context_settings={"help_option_names": ["-h", "--help"]},
)
_BEFORE_RUNNING = (check, explain, advise, simulate, report, calibrate, draw)
for verb in (list_, *_BEFORE_RUNNING, compile_, tune, synthesize, lab, fmt, lsp, new, doctor, help_):
    own = {"allow_interspersed_args": verb is not lab}  # options behind a script are its own
    app.command(verb.__name__.rstrip("_"), epilog=import_module(verb.__module__).EXAMPLES, context_settings=own)(verb)
app.add_typer(topo, name="topo")
app.add_typer(profile, name="profile")
app.add_typer(cache, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        from zenc._version import __version__

        typer.echo(f"zenc {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Take the options before the verb."""


def main() -> None:
    """Run the program with the arguments of the command line."""
    if os.environ.get("COLUMNS") == "0":  # of a terminal that does not know its width; rich would print nothing
        del os.environ["COLUMNS"]
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # it is closed, and what is opened next would take its place
            setattr(sys, name, nowhere("rww"[place]))
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files and texts may hold what its encoding has not
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = as_terminal_text(sys.stdout), as_terminal_text(sys.stderr)
    with reporting(json="--json" in sys.argv):
        try:
            ensure_sound()
            app(prog_name="zenc")
        finally:
            if not sys.stdout.closed:  # by a language server at its end
                sys.stdout.flush()
