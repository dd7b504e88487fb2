"""Common parts of the verbs: options, the search for schemes, the report of errors, and streams of clean text."""

from __future__ import annotations

import json as json_text
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from mimetypes import MimeTypes
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Annotated, Any, Protocol, TextIO, cast

import typer

from zenc.common.environment import is_on
from zenc.common.resources import write_text
from zenc.errors import Diagnostic, InternalError, ZencError, printable

if TYPE_CHECKING:
    from typer.models import OptionInfo

    from zenc.api import Asked
    from zenc.kinds import Opened
    from zenc.topology.model import Topology

WithStrategyArgument = Annotated[
    str, typer.Argument(metavar="SCHEME", help="A .zen file, or the name of one that comes with zenc.")
]
RanksOption = Annotated[int | None, typer.Option("--ranks", min=1, metavar="N", help="Number of ranks.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A value for a parameter of the scheme; may be repeated."),
]
WhichOption = Annotated[
    str | None,
    typer.Option(
        "--scheme", metavar="NAME", help="Name of the scheme, strategy or averaging, if the file has several."
    ),
]


def file_option(*names: str, help: str) -> OptionInfo:
    """Return the option of a file to read."""
    made: OptionInfo = typer.Option(*names, exists=True, dir_okay=False, metavar="FILE", help=help)
    return made


TensorsOption = Annotated[
    Path | None,
    file_option(
        "--model", help="For a strategy: hold its rules against the tensors of a model, as a dry run has saved it."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, diagnostics included.")]


LinkOption = Annotated[
    str | None, typer.Option("--link", metavar="B", help="Choose formats by seconds, over links such as '400 Gbit/s'.")
]
TopologyOption = Annotated[
    str | None,
    typer.Option(
        "--topology",
        metavar="TOPOLOGY",
        help="Hold it against a cluster: a file, FILE:NAME, or a builder such as 'nodes(4, gpus = 8)'; files take "
        "values, too: 'box.txt(nodes = 4)'. Its ranks are the ranks.",
    ),
]


DensityOption = Annotated[
    float,
    typer.Option("--density", min=0.0, max=1.0, metavar="D", help="Share of units that one rank's gradient holds."),
]
UnitsOption = Annotated[
    int, typer.Option("--units", min=0, metavar="U", help="Units of the tensor: rows of an embedding, or elements.")
]
WidthOption = Annotated[
    int, typer.Option("--width", min=1, metavar="W", help="Values in a unit: columns of an embedding.")
]
DtypeOption = Annotated[str, typer.Option("--dtype", metavar="TYPE", help="f32, f64, f16 or bf16.")]


def output_option(ending: str, *names: str, help: str) -> OptionInfo:
    """Return the option of a file to write whose name has this ``ending``, or at least none of another kind of file."""
    made: OptionInfo = typer.Option(*names, metavar=f"FILE{ending}", help=help, callback=_as_named(ending))
    return made


def _as_named(ending: str) -> Callable[[Path | None], Path | None]:
    """Return a callback that refuses a path whose name promises another kind of file, a folder, or one in no folder."""
    kind = _ENDINGS.guess_type(f"a{ending}")[0]

    def checked(path: Path | None) -> Path | None:
        promised, packed = _ENDINGS.guess_type(str(path or ""), strict=False)
        if packed or promised not in (None, kind):
            raise typer.BadParameter(f"'{path}' would be {packed or promised} by its name, and this writes {kind}")
        if path is not None and os.path.isdir(path or "."):
            raise typer.BadParameter(f"'{path}' is a folder, and this writes a file")
        folder = os.path.dirname(path or "") or "."
        if path and not os.path.exists(path) and not os.access(f"{folder}/", os.W_OK):
            raise typer.BadParameter(f"there is no folder '{folder}' that can be written to")
        return path

    return checked


_ENDINGS = MimeTypes()
"""The endings of file names that Python itself knows, and ours: no file of the machine adds to them."""
_ENDINGS.add_type("text/x-zen", ".zen")


SECONDS_OF_SILENCE = 2.0


@contextmanager
def reporting(json: bool, verb: str = "") -> Iterator[None]:
    """Turn errors raised inside into diagnostics on standard error and exit status 1; say that ``verb`` takes long."""
    late = Timer(SECONDS_OF_SILENCE, print, [f"zenc {verb}: still working ..."], {"file": sys.stderr})
    late.daemon = True
    if verb:
        late.start()
    try:
        yield
    except ZencError as error:
        fail(error, json)
    except (BrokenPipeError, KeyboardInterrupt, typer.BadParameter):
        raise
    except MemoryError:
        help = "take fewer ranks or units, or a machine with more memory"
        fail(ZencError(Diagnostic("out-of-memory", "there is not enough memory for this", help=help)), json)
    except Exception as error:
        if is_on("ZENC_DEBUG"):
            traceback.print_exc()
        fail(as_bug(error), json)
    finally:
        late.cancel()


def fail(error: ZencError, json: bool) -> None:
    """Show ``error`` and end the program."""
    show_diagnostics(error.diagnostics)
    if json:
        print_json({"ok": False, "diagnostics": [diagnostic.to_json() for diagnostic in error.diagnostics]})
    raise SystemExit(1)


def as_bug(error: Exception) -> InternalError:
    """Return an exception that zenc never meant to raise as a diagnostic that a user can report."""
    message = f"a bug in zenc: {type(error).__name__}: {error}"
    advice = "please report it, with what ZENC_DEBUG=1 in the environment makes zenc print"
    return InternalError(Diagnostic("internal", message, help=advice))


def show_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Print ``diagnostics`` to standard error, with their places and help."""
    for diagnostic in diagnostics:
        print(diagnostic.render(), file=sys.stderr)


def print_json(value: object) -> None:
    """Print ``value`` to standard output, indented by two."""
    print(json_text.dumps(value, indent=2))


def locate(scheme: str) -> str:
    """Return the file of ``scheme``: a path, or the name of a shipped scheme where there is no such file.

    Raises:
        typer.BadParameter: neither is there.
    """
    if os.path.exists(scheme):  # unlike Path.exists, False for a path that can't be
        return scheme
    from zenc.language import files

    path = files.locate(scheme)
    if os.path.exists(path):
        with suppress(OSError, ValueError):  # where it is below the current directory, and that is still there
            return str(path.relative_to(Path.cwd()))
        return str(path)
    raise typer.BadParameter(
        f"'{scheme}' is neither a file nor a scheme that comes with zenc; {files.near_name(scheme)}"
    )


def asked(
    ranks: int | None, params: Mapping[str, str], scheme: str | None, topology: str | None, link: str | None = None
) -> Asked:
    """Return the arguments of ``zenc.open`` beside the text; raises as ``on_topology`` does."""
    cluster, size = on_topology(topology, ranks)
    return {"ranks": size, "params": params, "scheme": scheme, "topology": cluster, "link": link}


def is_plan(path: str, *given: object) -> bool:
    """Return whether a file is a plan of another program; raises typer.BadParameter where more is ``given`` then."""
    from zenc.referee.open import kind_of

    found = not path.endswith(".zen") and kind_of(path) is not None
    if found and any(given):
        raise typer.BadParameter(
            f"'{path}' is a plan of another program, which says its ranks itself and has no parameters"
        )
    return found


def ensure_no_model(found: Opened, model: Path | None) -> None:
    """Raise typer.BadParameter where a ``model`` is given to a scheme, which is about any tensor."""
    if model is not None and found.kind != "strategy":
        raise typer.BadParameter("--model is for strategies, and this is a scheme")


def on_topology(what: str | None, ranks: int | None) -> tuple[Topology | None, int | None]:
    """Return the topology ``what``, if any, and the number of ranks: its own, unless ``ranks`` are given.

    Raises ZencError as ``load_topology`` does.
    """
    if what is None:
        return None, ranks
    from zenc.topology.load import load_with_warnings

    topology, warnings = load_with_warnings(what)
    show_diagnostics(warnings)
    return topology, topology.size if ranks is None else ranks


def without_plots(plot: Path | None) -> tuple[Diagnostic, ...]:
    """Return why ``plot`` can't be drawn, where it is wanted; shown at once, since the work before it may take long."""
    if plot is None:
        return ()
    from zenc.draw.plots.figure import ensure_matplotlib

    try:
        ensure_matplotlib()
    except ZencError as error:
        show_diagnostics(error.diagnostics)
        return error.diagnostics
    return ()


def answer(json: bool, found: Mapping[str, object], text: str) -> None:
    """Print ``found`` as JSON, or ``text``."""
    print_json({"ok": True, **found}) if json else print(text)


def show(json: bool, found: Mapping[str, object], text: str, missing: Sequence[Diagnostic]) -> None:
    """Print ``found`` as JSON, or ``text``; exit with status 1 where ``missing`` says what could not be drawn."""
    if json:
        told = {"diagnostics": [diagnostic.to_json() for diagnostic in missing]}
        print_json({"ok": not missing, **told, **found})
    else:
        print(text)
    if missing:
        raise SystemExit(1)


class Made(Protocol):
    """A scheme or strategy that was searched for."""

    def text(self, command: str) -> str:
        """Return the text of a file that has it, which says that ``command`` has made it."""

    def to_json(self) -> dict[str, Any]:
        """Return all that was found as JSON data."""


def show_made(
    json: bool, found: Made, output: Path | None, lines: Iterable[str], missing: Sequence[Diagnostic], said: str
) -> None:
    """Write the text of ``found`` to ``output``, which ``said`` says after ``lines``, or show it; exit as ``show``."""
    text = found.text(shlex.join(["zenc", *sys.argv[1:]]))
    try:
        if output:
            write_text(output, text)
    except ZencError as error:  # the search may have taken long, so what it found is shown
        show_diagnostics(error.diagnostics)
        output, missing = None, (*missing, *error.diagnostics)
    shown = "\n".join([*lines, f"\n{output} {said}" if output else f"\n{text.rstrip()}"])
    show(json, {"file": str(output) if output else None, **found.to_json(), "text": text}, shown, missing)


def deliver(json: bool, output: str, text: str, found: Mapping[str, object], said: str) -> None:
    """Write ``text`` to the file ``output`` and print ``said``, or print ``text`` where that is ``-``.

    With ``json`` it prints ``found`` instead, with ``text`` in it unless it is in a file.
    """
    if output != "-":
        write_text(output, text)
    if json:
        print_json({"ok": True, "file": output, **found, **({"text": text} if output == "-" else {})})
    else:
        print(said if output != "-" else text, end="\n" if output != "-" else "")


def print_bytes(content: bytes) -> None:
    """Print ``content`` as it is."""
    with delivering(sys.stdout):
        sys.stdout.flush()
        sys.stdout.buffer.write(content)


def parameters(assignments: list[str] | None) -> dict[str, str]:
    """Return the values of ``--set NAME=VALUE``; the scheme checks them.

    Raises:
        typer.BadParameter: one is not an assignment.
    """
    values: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, text = assignment.partition("=")
        if not (equals and name.strip() and text.strip()):
            raise typer.BadParameter(f"--set takes NAME=VALUE, not '{assignment}'")
        values[name.strip()] = text.strip()
    return values


_OWN = re.compile("(\x1b\\[[0-9;]*m|\x1b]8;[^\x1b\x07]*;[^\x1b\x07]*\x1b\\\\)")
"""Colours and links, which rich writes to terminals."""


class _TerminalText:
    """A stream of text that is cleaned when it is written, and otherwise acts as the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text`` without parts that move a cursor; return its length."""
        if not text or not isinstance(text, str):  # click tries what a stream takes, and hears no errors
            return self._stream.write(text)
        parts = _OWN.split(text) if self._stream.isatty() else [text]
        cleaned = [part if place % 2 else printable(part, lines=True) for place, part in enumerate(parts)]
        with delivering(self._stream):
            self._stream.write("".join(cleaned))
        return len(text)

    def flush(self) -> None:
        """Write what is held back."""
        with delivering(self._stream):
            self._stream.flush()


def as_terminal_text(stream: TextIO) -> TextIO:
    """Return ``stream``, through which no text of a user reaches a terminal raw."""
    return cast(TextIO, _TerminalText(stream))


@contextmanager
def delivering(stream: TextIO) -> Iterator[None]:
    """Turn a failure to write to ``stream`` into ZencError ``unwritable-file``, and write no more to it."""
    try:
        yield
    except BrokenPipeError:  # its reader has enough
        raise
    except OSError as error:
        with nowhere("w") as instead:  # what is still held back would fail again
            os.dup2(instead.fileno(), stream.fileno())
        message = f"can't write to {stream.name}: {error.strerror or error}"
        raise ZencError(Diagnostic("unwritable-file", message, help="see that there is room")) from error


def nowhere(mode: str) -> IO[str]:
    """Return a stream that is empty, and takes all."""
    return os.fdopen(os.open(os.devnull, os.O_RDWR), mode)
