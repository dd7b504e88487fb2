"""Files that anyone may have written, and the JSON in them: read up to a limit of bytes, as numbers that are numbers.

Whoever reads says what the data should be, and turns OSError and ValueError into errors of its own.
"""

from __future__ import annotations

import json
import os
from math import isfinite
from typing import Any, NoReturn

from zenc.format_units import size_text


def read_bytes(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a file, which may be a pipe; raises OSError, and ValueError where it is longer.

    Its length is not asked for first: devices have none, and files grow.
    """
    with open(path, "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it is too long: more than {size_text(most_bytes)}")
    return data


def read_json(path: str | os.PathLike[str], most_bytes: int) -> Any:
    """The JSON in a file of at most ``most_bytes``; raises OSError, and ValueError as ``parse_json``."""
    return parse_json(read_bytes(path, most_bytes))


def parse_json(data: bytes) -> Any:
    """The JSON that ``data`` are; raises ValueError for what is none, too deep, or has NaN and infinite numbers."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError("it is no text in UTF-8, so no JSON") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def as_number(value: object) -> float:
    """``value`` as a float; raises ValueError unless it is a number that a float can be, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.40} is no number")
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(f"a number of {len(str(value))} digits is too great") from None
    if not isfinite(found):
        raise ValueError(f"{found} is no number")
    return found
