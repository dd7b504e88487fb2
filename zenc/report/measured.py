"""Measurements in files: the seconds of calls in the lab, its suite, or a training run; read without trust.

    Measured   = name title Row* Conditions
    Row        = scheme seconds low high sent?            # of a call, median and quartiles; bytes of the busiest rank
    Conditions = ranks? bandwidth? units? width? density? zipf?        # under which it was measured, as far as it says

Three forms of JSON are read. ``python -m benchmarks.lab --json`` writes ``{"settings": ..., "peers": {scheme: ...}}``,
and so does each point of the suite. ``{scheme: seconds}`` is any other measurement. And ``{scheme: handle.stats}`` are
a training run's statistics: parameter -> stats of its last call.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zenc.common.untrusted import as_number, read_json
from zenc.errors import CostError, Diagnostic, first_line

MOST_BYTES = 1 << 28
"""Most bytes of a file: the lab's, with every sample of every rank, have megabytes."""
_HELP = '`python -m benchmarks.lab --json FILE` writes such a file; so may you: {"balanced": 0.0123}, seconds of a call'
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)bit", re.IGNORECASE)
_FACTOR = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A measurement: median ``seconds`` of ``rounds`` of a call, quartiles, and the busiest rank's ``sent`` bytes."""

    scheme: str
    seconds: float
    low: float
    high: float
    sent: float | None = None
    rounds: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: seconds, and bytes of the busiest rank."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "scheme"}


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a measurement, None where unknown; ``bandwidth`` in bytes a second, units ``drawn`` by ``zipf``."""

    ranks: int | None = None
    bandwidth: float | None = None
    units: int | None = None
    width: int | None = None
    density: float | None = None
    zipf: float | None = None
    drawn: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, with null for conditions that the file does not have."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "drawn"}


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements: ``rows`` by the name of a scheme; ``title`` names the measurement, in the file's own words."""

    name: str
    title: str
    rows: Mapping[str, MeasuredRow]
    at: Conditions = field(default_factory=Conditions)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: the name of the file, its title, conditions, and rows by scheme."""
        rows = {name: row.to_json() for name, row in self.rows.items()}
        return {"file": self.name, "title": self.title, "conditions": self.at.to_json(), "rows": rows}


def read_measured(path: str | os.PathLike[str]) -> Measured:
    """Return the measurements in a file; raises CostError (``bad-measurement``) for anything else."""
    data = _parsed(path)
    name = Path(path).name
    if isinstance(data, dict) and isinstance(data.get("peers"), dict):
        rows = {scheme: _of_lab(path, scheme, row) for scheme, row in data["peers"].items()}
        settings = data.get("settings")
        at = _conditions(settings) if isinstance(settings, dict) else Conditions()
        title = data.get("title")
        return Measured(name, title if isinstance(title, str) else "", _some(path, rows), at)
    if isinstance(data, dict):
        rows = {scheme: _of_run(path, scheme, value) for scheme, value in data.items()}
        return Measured(name, "", _some(path, rows))
    raise _bad(path, "it is no object of JSON")


def _parsed(path: str | os.PathLike[str]) -> Any:
    try:
        return read_json(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise _bad(path, first_line(error)) from error


def _of_lab(path: str | os.PathLike[str], scheme: str, row: Any) -> MeasuredRow:
    spread = row.get("seconds") if isinstance(row, dict) else None
    if not isinstance(spread, dict):
        raise _bad(path, f"'{scheme}' has no seconds")
    low, seconds, high = (_amount(path, scheme, spread.get(name)) for name in ("low", "median", "high"))
    sent, rounds = row.get("counted_sent"), row.get("rounds")
    sent = row.get("interface_sent", row.get("sent")) if sent is None else sent
    counted = None if sent is None else _amount(path, scheme, sent)
    return MeasuredRow(scheme, seconds, low, high, counted, rounds if type(rounds) is int else None)


def _of_run(path: str | os.PathLike[str], scheme: str, value: Any) -> MeasuredRow:
    """Return a row from seconds; or from parameter -> stats, whose calls follow one another."""
    if isinstance(value, dict) and value:
        stats = [each for each in value.values() if isinstance(each, dict)]
        seconds = [_amount(path, scheme, each.get("seconds")) for each in stats]
        sent = [_amount(path, scheme, each.get("bytes_sent")) for each in stats]
        if len(stats) == len(value):
            return MeasuredRow(scheme, sum(seconds), sum(seconds), sum(seconds), sum(sent), 1)
    seconds_of_call = _amount(path, scheme, value)
    return MeasuredRow(scheme, seconds_of_call, seconds_of_call, seconds_of_call)


def _amount(path: str | os.PathLike[str], scheme: str, value: Any) -> float:
    if (number := _number(value)) is None:
        raise _bad(path, f"'{scheme:.80}' has {str(value)[:40]!r} where a number of 0 or more belongs")
    return number


def _some(path: str | os.PathLike[str], rows: dict[str, MeasuredRow]) -> dict[str, MeasuredRow]:
    if not rows:
        raise _bad(path, "nothing was measured in it")
    return rows


def _conditions(settings: dict[str, Any]) -> Conditions:
    """Return the conditions in ``settings``; impossible ones count as not given."""
    load = settings.get("workload")
    load = load if isinstance(load, dict) else {}
    density, zipf = _number(load.get("density")), _number(load.get("zipf"))
    return Conditions(
        ranks=_count(settings.get("ranks")),
        bandwidth=_rate(settings.get("rate")),
        units=_count(load.get("units")),
        width=_count(load.get("width")),
        density=density if density is not None and density <= 1 else None,
        zipf=zipf,
        drawn=load.get("kind") in ("rows", "elements") and not load.get("permuted"),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _number(value: Any) -> float | None:
    with suppress(ValueError):
        return number if (number := as_number(value)) >= 0 else None
    return None


def _rate(value: Any) -> float | None:
    """Return ``100mbit``, as tc takes it, in bytes a second."""
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    rate = float(found[1]) * _FACTOR[found[2].lower()] / 8 if found else 0.0
    return rate if 0 < rate < math.inf else None


def _bad(path: str | os.PathLike[str], why: str) -> CostError:
    return CostError(Diagnostic("bad-measurement", f"{path} holds no measurements: {why}", help=_HELP))
