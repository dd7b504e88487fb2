"""What a cluster and its processors take, beside the bytes: few numbers, each of which can be measured.

    Calibration = name network kernels
    network     = bandwidth efficiency step message fan_in burst           # bytes a second; seconds; bytes
    kernels     = call pack merge expand cores?
    Kernel      = seconds a unit, bytes a second

A step of a schedule takes ``step`` seconds from its start until its messages are under way, and ``message`` more for
each that a rank sends. A port then carries bytes at ``efficiency`` times the bandwidth of its link. Where several
messages come to a port at once, each after the first costs it half of its own bytes more, but at most ``fan_in``:
senders that compete for a receiver do not keep it busy without gaps. ``burst`` bytes of each port are carried at once
when a call begins, as a token bucket does.

``zenc calibrate`` measures all of them but ``burst``, which a network has or has not.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from zenc.errors import CostError, Diagnostic, first_line

VERSION = 1
FAN_IN_SHARE = 0.5
"""Of a message's own bytes, what it costs its receiver at most that others come at the same time."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel takes: ``unit`` seconds for each unit, and its values at ``speed`` bytes a second."""

    unit: float
    speed: float

    def seconds(self, units: float, bytes: float) -> float:
        return units * self.unit + bytes / self.speed


@dataclass(frozen=True, slots=True)
class Calibration:
    """See above. ``bandwidth`` counts where no topology is given; ``cores`` where all ranks share so many."""

    name: str = "defaults"
    bandwidth: float = 12.5e9
    efficiency: float = 0.95
    step: float = 20e-6
    message: float = 5e-6
    fan_in: float = 0.0
    burst: float = 0.0
    call: float = 100e-6
    pack: Kernel = field(default=Kernel(9e-9, 12e9))
    merge: Kernel = field(default=Kernel(2e-9, 12e9))
    expand: Kernel = field(default=Kernel(6e-9, 12e9))
    cores: int | None = None

    def __post_init__(self) -> None:
        complain([(wrong, f"calibration '{self.name}': {message}") for wrong, message in _unsound(self)])

    def slowdown(self, ranks: int) -> float:
        """By how much longer kernels take where the processors are shared."""
        return max(1.0, ranks / self.cores) if self.cores else 1.0

    def to_json(self) -> dict[str, Any]:
        return {"zenc_calibration": VERSION, **asdict(self)}


def complain(problems: list[tuple[bool, str]]) -> None:
    """Raise CostError (``bad-calibration``) with all messages whose condition holds."""
    help = "zenc calibrate writes such files"
    found = [Diagnostic("bad-calibration", message, help=help) for wrong, message in problems if wrong]
    if found:
        raise CostError(found)


def _unsound(of: Calibration) -> list[tuple[bool, str]]:
    positive = {
        "bandwidth": of.bandwidth,
        **{f"speed of {k}": getattr(of, k).speed for k in ("pack", "merge", "expand")},
    }
    least = {name: getattr(of, name) for name in ("step", "message", "fan_in", "burst", "call")}
    least |= {f"seconds a unit of {k}": getattr(of, k).unit for k in ("pack", "merge", "expand")}
    return [
        *((not (isfinite(x) and x > 0), f"{name} is above 0, not {x:g}") for name, x in positive.items()),
        *((not (isfinite(x) and x >= 0), f"{name} is 0 or more, not {x:g}") for name, x in least.items()),
        (not 0 < of.efficiency <= 1, f"efficiency is above 0 and at most 1, not {of.efficiency:g}"),
        (of.cores is not None and of.cores < 1, f"ranks share 1 core at least, not {of.cores}"),
    ]


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """What ``zenc calibrate`` wrote to ``path``; raises CostError (``bad-calibration``) for anything else."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(data, dict) or data.pop("zenc_calibration", None) != VERSION:
            raise ValueError(f"it has no 'zenc_calibration': {VERSION}")
        return _calibration(data)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, CostError):
            raise
        complain([(True, f"{path} holds no calibration: {first_line(error)}")])
        raise AssertionError from error


def _calibration(data: dict[str, Any]) -> Calibration:
    known = {each.name for each in fields(Calibration)}
    if strange := sorted(set(data) - known) + sorted(known - set(data)):
        raise ValueError(f"{', '.join(strange)}: missing, or unknown")
    for name in ("pack", "merge", "expand"):
        data[name] = Kernel(*(_number(data[name][key]) for key in ("unit", "speed")))
    numbers = {k: _number(v) for k, v in data.items() if k not in ("name", "cores", "pack", "merge", "expand")}
    if not isinstance(data["name"], str) or not (data["cores"] is None or type(data["cores"]) is int):
        raise ValueError("name is a text, cores a whole number or null")
    return Calibration(**{**data, **numbers})


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return float(value)


DEFAULTS = Calibration()
"""100 Gbit/s, and kernels of one CPU core as docs/performance.md has them: a guess, where nothing was measured."""
