"""Files that anyone may have written, and the JSON in them: read up to a limit of bytes, as numbers that are numbers.

A reader knows what the data should be, and turns OSError and ValueError into errors of its own.
"""

from __future__ import annotations

import json
import os
import re
import select
import stat
import time
from math import isfinite
from typing import Any, BinaryIO, NoReturn

from zenc.common.wording import size_text

PATIENCE_SECONDS = 60.0
"""The longest that a pipe may take until its end."""
_UNWRITTEN_SECONDS = 2.0
"""The longest wait for a writer to open a pipe."""
_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_STREAMS = re.compile(r"/(?:dev/(?:stdin|stdout|stderr|fd)|proc)\b")


def open_file(path: str | os.PathLike[str], pipes: bool = False) -> BinaryIO:
    """Open a regular file, or also one of ``pipes``, to read from; raises OSError, and ValueError for others.

    Nothing is waited for, and no device is touched.
    """
    if not pipes and _STREAMS.match(os.path.abspath(path)):
        raise ValueError("it is a stream of this process, and no regular file")
    _ensure_readable(os.stat(path).st_mode, pipes)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    file = os.fdopen(handle, "rb")
    try:
        _ensure_readable(os.fstat(handle).st_mode, pipes)
    except ValueError:
        file.close()
        raise
    return file


def _ensure_readable(mode: int, pipes: bool) -> None:
    if not (stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode))):
        raise ValueError(f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, and no regular file")


def read_bytes(path: str | os.PathLike[str], most_bytes: int, pipes: bool = False) -> bytes:
    """Return the content of a regular file; raises OSError, and ValueError where it is longer, or something else.

    ``pipes`` are read too, for PATIENCE_SECONDS at most: for files that a user names, and no text.
    """
    with open_file(path, pipes) as file:
        piped = stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
        data = _read_pipe(file.fileno(), most_bytes) if piped else file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it is too long: more than {size_text(most_bytes)}")
    return data


def _read_pipe(handle: int, most_bytes: int) -> bytes:
    data, poll, ends = bytearray(), select.poll(), time.monotonic() + PATIENCE_SECONDS
    poll.register(handle, select.POLLIN)
    while len(data) <= most_bytes:
        if time.monotonic() >= ends:
            raise ValueError(f"it is a pipe that did not end within {PATIENCE_SECONDS:g} s")
        heard = poll.poll(1000 * _UNWRITTEN_SECONDS)
        try:
            piece = os.read(handle, 1 << 16)
        except BlockingIOError:  # somebody has it open, and writes nothing yet
            continue
        if not piece and not heard:
            raise ValueError("it is a pipe that nobody writes to")
        if not piece:
            break
        data += piece
    return bytes(data)


def read_json(path: str | os.PathLike[str], most_bytes: int) -> Any:
    """Return the JSON in a file or pipe of at most ``most_bytes``; raises OSError, and ValueError as ``parse_json``."""
    return parse_json(read_bytes(path, most_bytes, pipes=True))


def parse_json(data: bytes) -> Any:
    """Parse ``data`` as JSON; raises ValueError for anything else, too deep data, or NaN and infinite numbers."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=no_number)
    except UnicodeDecodeError as error:
        raise ValueError("it is no text in UTF-8, so no JSON") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def no_number(word: str) -> NoReturn:
    """Raise ValueError for ``word``, a constant that JSON has not: NaN, Infinity or -Infinity."""
    raise ValueError(f"{word} is no number")


def as_number(value: object) -> float:
    """Return ``value`` as a float; raises ValueError unless it is a number that a float can be, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.40} is no number")
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(f"a number of {len(str(value))} digits is too great") from None
    if not isfinite(found):
        raise ValueError(f"{found} is no number")
    return found
