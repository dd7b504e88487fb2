"""Calibration: the latencies, rates and kernel speeds of a cluster, few numbers that can be measured.

    Calibration = name network kernels compression copies?                 # copies: bytes a second, a GPU to its host
    network     = bandwidth efficiency step message fan_in fan_in_from burst buffer    # bytes a second; seconds; bytes
    kernels     = call hook_byte hook_message Kernel* cores?               # those of KERNELS
    Kernel      = curve speed                                              # seconds a slot by density; bytes a second
    compression = (name speed)*            # bytes of float32 a second, of zenc.simulator.compression_work.COMPRESSION

A step of a schedule takes ``step`` seconds from its start until its messages are under way, and ``message`` more for
each that a rank sends. A port then carries bytes at ``efficiency`` times the bandwidth of its link. Where several
messages come to a port at once, each after the first costs it half of its own bytes more, but at most ``fan_in``:
senders that compete for a receiver do not keep it busy without gaps. The first ``fan_in_from`` bytes, of all of them
together, cost nothing more. ``burst`` bytes of each port are carried at once
when a call begins, as a token bucket does. A message has left its sender when no more than ``buffer`` bytes of it are
on their way: so much of each waits in the buffers of its connection, and the sender goes on.

A call that a training step makes takes its host's processor longer than its kernels do, by ``hook_byte`` seconds for
each byte of its gradients and by ``hook_message`` for each message that the host sends: DDP's buckets and their copies,
the hook, the threads of messages, and the data that has left the caches.

``zenc calibrate`` measures all of them but ``burst``, which a network has or has not, and these two, for which the lab
trains models (``benchmarks.lab.training_calls``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import inf
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.common.json_codec import Codec
from zenc.common.limits import LIMITS
from zenc.common.untrusted import read_json
from zenc.common.versioned import CALIBRATION
from zenc.errors import MOST_RAISED, CostError, Diagnostic, first_line
from zenc.scheme.units import bandwidth_text
from zenc.topology.model import Topology

Floats = npt.NDArray[np.float64]
Curve: TypeAlias = tuple[tuple[float, float], ...]

BOUNDLESS = LIMITS["speed"].most
"""The speed of a kernel that sees no values."""
_NEAREST = 1e-9
"""The least distance between points of a curve: slopes are seconds over this at most."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Seconds of a kernel: values at ``speed`` bytes a second, and the ``curve``'s seconds for each slot.

    A curve has two points or more: units a slot from 0 on, ascending, and seconds a slot, which never fall. Between
    them it is straight, and beyond the last as steep as before it. It bends, since processors predict best in bitmaps
    whose words are nearly all empty, and some kernels do many units at once.
    """

    curve: Curve
    speed: float

    def seconds(self, units: float, bytes: float, slots: float) -> float:
        """Return the seconds for ``units`` out of ``slots``, with ``bytes`` of values."""
        return float(self.each(np.array([units], np.float64), bytes, np.array([slots], np.float64))[0])

    def each(self, units: Floats, bytes: Floats | float, slots: Floats) -> Floats:
        """Return the seconds of many calls, in the shape of the arguments."""
        (*_, before, last), (at, seconds) = self.curve, np.array(self.curve).T
        density = np.divide(units, slots, out=np.zeros_like(units), where=slots > 0)
        steep = (last[1] - before[1]) / (last[0] - before[0])
        of_slot = np.interp(density, at, seconds) + np.maximum(density - last[0], 0.0) * steep
        return np.asarray(of_slot * slots + bytes / self.speed)

    def unsound(self) -> str:
        """Return the fault of an impossible curve, in words; "" for a possible one."""
        at = [units for units, _ in self.curve]
        if not (len(at) > 1 and at[0] == 0 and all(b - a >= _NEAREST and b < inf for a, b in pairwise(at))):
            return f"a curve has points from 0 units on, ascending, {_NEAREST:g} apart or more"
        for (x, y), (x2, y2) in pairwise(self.curve):
            if y2 < y:
                return f"its curve falls, from {y * 1e9:.3g} ns a slot at {x:.3g} units to {y2 * 1e9:.3g} at {x2:.3g}"
        return ""


def linear_kernel(unit: float, speed: float = BOUNDLESS, slot: float = 0.0) -> Kernel:
    """Return a kernel of ``unit`` seconds a unit and ``slot`` seconds a slot."""
    return Kernel(((0.0, slot), (1.0, slot + unit)), speed)


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nearest numbers [n] to ``values`` [n] by weighted least squares that never fall, and are 0 or more.

    Isotonic regression by pooling adjacent violators (Ayer, Brunk, Ewing, Reid, Silverman, 1955).
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, of_a, m), (b, of_b, n) = pools[-2:]
            pools[-2:] = [((a * of_a + b * of_b) / (of_a + of_b), of_a + of_b, m + n)]
    return [max(0.0, mean) for mean, _, count in pools for _ in range(count)]


MOST_BYTES = 1 << 20
"""Most bytes of a file: a calibration takes a few kilobytes."""
MOST_LETTERS, MOST_SPEEDS = 1000, 1000
FAN_IN_SHARE = 0.5
"""The most that a message costs its receiver when others come at the same time, as a share of its own bytes."""

BUSY = 0.25
"""The spread from which on a machine counts as busy."""

KERNELS: Mapping[str, str] = MappingProxyType(
    {
        "pack": "a gradient to segments, one a part",
        "merge": "segments of one part to their sum",
        "expand": "the sum to a tensor, where parts are mixed",
        "list": "the sum to a tensor, where parts are ranges",
        "join": "the sum to a tensor, by holders",
        "index": "one index written, or read",
        "owners": "owners chosen, from the index sets of all ranks",
        "shares": "which slots of a part each rank holds, by holders",
        "finer": "units cut into the elements that a scheme sums",
        "coarser": "elements collected into the units of the tensor",
    }
)
"""Name -> the kernel's work in words; ``zenc.simulator.compute_model`` has the times at which each runs."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration, as the module describes; ``bandwidth`` counts without a topology, ``cores`` if ranks share them.

    ``spread``: the share by which the rounds of its measurement differed; above BUSY the machine did something else
    meanwhile. None where it is unknown, as ``copies`` without a GPU. ``guess``: in words, the numbers that nobody
    measured here; "" where all are measured, or given. ``gpu``: whether kernels are those of a GPU, as assumed; a file
    does not say.
    """

    name: str = "defaults"
    bandwidth: float = 12.5e9
    efficiency: float = 0.95
    step: float = 20e-6
    message: float = 5e-6
    fan_in: float = 5e3
    burst: float = 0.0
    buffer: float = 0.0
    call: float = 100e-6
    pack: Kernel = field(default=linear_kernel(9e-9, 12e9, 0.02e-9))
    merge: Kernel = field(default=Kernel(((0.0, 0.02e-9), (0.01, 0.09e-9), (0.1, 0.18e-9)), 12e9))
    expand: Kernel = field(default=linear_kernel(6e-9, 12e9, 0.07e-9))
    list: Kernel = field(default=linear_kernel(0.5e-9, 12e9, 0.03e-9))
    join: Kernel = field(default=linear_kernel(3e-9, 12e9, 0.02e-9))
    index: Kernel = field(default=linear_kernel(2e-9, slot=0.02e-9))
    owners: Kernel = field(
        default=Kernel(((0.0, 0.012e-9), (0.01, 0.055e-9), (0.03, 0.13e-9), (0.1, 0.57e-9)), BOUNDLESS)
    )
    shares: Kernel = field(
        default=Kernel(((0.0, 0.005e-9), (0.01, 0.04e-9), (0.03, 0.08e-9), (0.1, 0.2e-9)), BOUNDLESS)
    )
    finer: Kernel = field(default=linear_kernel(1e-9))
    coarser: Kernel = field(default=linear_kernel(40e-9))
    cores: int | None = None
    spread: float | None = None
    compression: Mapping[str, float] = field(default_factory=dict, hash=False)
    fan_in_from: float = 0.0
    hook_byte: float = 0.0
    hook_message: float = 0.0
    copies: float | None = None
    guess: str = field(default="", compare=False)
    gpu: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        complain([(wrong, f"calibration '{self.name[:MOST_LETTERS]}': {message}") for wrong, message in _unsound(self)])

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels of KERNELS by name."""
        return {name: getattr(self, name) for name in KERNELS}

    @property
    def note(self) -> str:
        """A remark for a reader of predictions, in a line; "" where there is nothing to say."""
        if self.guess:
            return f"not calibrated: {self.guess}; `zenc calibrate` measures, --calibration takes what it wrote"
        if self.spread is not None and self.spread > BUSY:
            return f"calibrated on a busy machine, whose rounds differed by {self.spread:.0%}: measure again"
        return ""

    def in_training(self, bytes: float, messages: float) -> float:
        """Return processor seconds of a training step's call for ``bytes`` of gradients, beside its kernels.

        ``messages``: the number that the host sends.
        """
        return bytes * self.hook_byte + messages * self.hook_message

    def filled(self, idle: float) -> Calibration:
        """Return the calibration with token buckets that fill up in ``idle`` seconds of a call with free links."""
        return replace(self, burst=self.burst + min(self.burst, idle * self.bandwidth))

    def refilled(self, idle: float) -> Calibration:
        """Return the calibration with token buckets that were empty ``idle`` seconds ago, and filled up since."""
        return replace(self, burst=min(self.burst, idle * self.bandwidth))

    def slowdown(self, ranks: int) -> float:
        """Return the factor by which kernels take longer where ``ranks`` share the processors."""
        return max(1.0, ranks / self.cores) if self.cores else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, as ``read_calibration`` reads it; without the guess, since a file counts as given."""
        return {**CALIBRATION.head, **_CODEC.encode(self)}


IN_TRAINING = ("hook_byte", "hook_message")
"""Processor seconds of a call that a training step makes, beside its kernels."""
LIMITED: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("bandwidth", "efficiency", "spread", "cores")},
        "copies": "speed",
        **dict.fromkeys(("step", "message", "call", *IN_TRAINING), "seconds"),
        **dict.fromkeys(("fan_in", "fan_in_from", "burst", "buffer"), "bytes"),
    }
)
"""Number -> the name of its range in ``zenc.common.limits``."""
NOT_KEPT: Mapping[str, Any] = MappingProxyType(
    {"spread": None, "compression": {}, "fan_in_from": 0.0, "copies": None, **dict.fromkeys(IN_TRAINING, 0.0)}
)
"""Values for files written before these numbers were measured."""

TOLD = tuple(each.name for each in fields(Calibration) if each.name not in ("guess", "gpu"))
"""The fields that a file has: the first ones."""
_CODEC = Codec({Calibration: TOLD})

NO_KERNELS: Mapping[str, Any] = MappingProxyType(dict.fromkeys(KERNELS, linear_kernel(0.0)))
"""Kernels that take no time, by name."""


def bandwidth_only(name: str, bandwidth: float = 1e9) -> Calibration:
    """Return a calibration in which time is bytes over ``bandwidth``: latencies, kernels and fan-in cost nothing."""
    return Calibration(name, bandwidth, efficiency=1.0, step=0.0, message=0.0, fan_in=0.0, call=0.0, **NO_KERNELS)


def complain(problems: list[tuple[bool, str]]) -> None:
    """Raise CostError (``bad-calibration``) with all messages whose condition holds."""
    help = "zenc calibrate writes such files; let nothing else run while it measures"
    found = [Diagnostic("bad-calibration", message, help=help) for wrong, message in problems if wrong]
    if found:
        raise CostError(found[:MOST_RAISED])


def _unsound(of: Calibration) -> list[tuple[bool, str]]:
    kernels = of.kernels.items()
    told = [(name, limit, getattr(of, name)) for name, limit in LIMITED.items()]
    told += [(f"speed of {k}", "speed", kernel.speed) for k, kernel in kernels]
    told += [(f"speed of {name}", "speed", speed) for name, speed in of.compression.items()]
    told += [(f"seconds a slot of {k}", "seconds", y) for k, kernel in kernels for _, y in kernel.curve]
    problems = ((name, LIMITS[limit].problem(value)) for name, limit, value in told if value is not None)
    return [
        *((True, f"{name} {problem}") for name, problem in problems if problem),
        *((bool(wrong := each.unsound()), f"{k}: {wrong}") for k, each in kernels),
    ]


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Read the calibration that ``zenc calibrate`` wrote to ``path``; raises CostError (``bad-calibration``)."""
    try:
        data = read_json(path, MOST_BYTES)
        if not CALIBRATION.is_form_of(data):
            raise ValueError(f"it has no '{CALIBRATION.key}': {CALIBRATION.version}")
        CALIBRATION.ensure(data, str(path))
        return _calibration({name: value for name, value in data.items() if name != CALIBRATION.key})
    except (OSError, ValueError) as error:
        complain([(True, f"{path} holds no calibration: {first_line(error)}")])
        raise AssertionError from error


def _calibration(data: dict[str, Any]) -> Calibration:
    data = {**NOT_KEPT, **data}
    if lacking := [name for name in TOLD if name not in data]:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    found: Calibration = _CODEC.decode(Calibration, data)
    if len(found.name) > MOST_LETTERS or len(found.compression) > MOST_SPEEDS:
        raise ValueError(f"a name has at most {MOST_LETTERS} letters, and {MOST_SPEEDS} compressors have a speed")
    return found


DEFAULTS = Calibration(guess="20 us a step, TCP that loses 5 kB where messages meet, kernels of one CPU core")
"""100 Gbit/s, the fan-in of the lab's TCP, and kernels of one CPU core as ``benchmarks/micro.py`` found them.

Guesses, not measured here. The fan-in is that of the lab, at 100 Mbit/s.
"""


MEMORY = 3.0e12
"""Bytes a second that kernels get of the memory of an H100, where they were counted and not timed."""
CHOICE = 1e-6 / 32
"""Seconds to choose the owner of a row, one of a warp's 32: a microsecond for all is a guess."""
SHARED = 1 / 6
"""Rows with a choice, for each unit of all index sets: those that several ranks hold, each of which counts it."""
HASHED = 3.61
"""Seconds a slot of packing and expanding under a hierarchical hash on a GPU, over those under a permutation."""
ROWS = 1.15e12
"""Bytes a second of rows that a GPU writes to the result."""
EXPANDED = 1.23e-12
"""Seconds a slot of single values that it writes to the result."""

ESTIMATES = Calibration(
    name="GPU estimates",
    step=50e-6,
    message=1e-6,
    fan_in=0.0,  # of which nothing is known there
    call=65e-6,
    pack=linear_kernel(0.0, 1.28e12, 1.69e-12),
    merge=linear_kernel(0.0, 1.11e12, 0.314e-12),
    expand=linear_kernel(0.0, ROWS, EXPANDED),
    list=linear_kernel(0.0, ROWS, EXPANDED),
    join=linear_kernel(64 / MEMORY, ROWS, 1.0 / MEMORY),
    index=linear_kernel(0.0, slot=0.44e-12),
    owners=linear_kernel(CHOICE * SHARED, slot=0.25 / MEMORY),
    shares=linear_kernel(23 / MEMORY, slot=0.25 / MEMORY),
    finer=linear_kernel(16 / MEMORY),
    coarser=linear_kernel(160 / MEMORY),
    guess="calls and kernels as one H100 took them, 50 us a step, nothing measured between GPUs",
    gpu=True,
)
"""The calibration of GPUs where nothing was measured: what one H100 took, and guesses of what it could not show.

Measured at revision 6dfd5359 (``benchmarks/reports/gpus.md``): ``python -m benchmarks.gpu_predictions`` derives
``pack``, ``merge``, ``expand`` and ``index`` from one rank of 8 under ``balanced``, HASHED from ``zen`` among two ranks
that shared the GPU, and ``call`` from a call of one value, less its two steps and 14 messages; ``list`` is ``expand``.
A slot of an index can't be told from a unit in it, so all of its time is that of slots.

``step`` and ``message`` are guesses, of which only the sum with ``call`` was measured. ``join``, ``owners``,
``shares``, ``finer`` and ``coarser`` are bytes of memory counted by hand, at 3 TB/s; owners are chosen 32 at a time.
Nothing was measured among several GPUs: NVLink, networks, and what kernels lose while messages come.
"""


Device = Literal["cpu", "gpu"]


def assumed(topology: Topology | None, bandwidth: float | None = None, device: Device | None = None) -> Calibration:
    """Return assumed numbers for ``topology``, or for links of ``bandwidth`` bytes a second; ``guess`` names them.

    ``device``: the device of a rank; by default a GPU where the topology has a level ``gpu``, or NVLinks, and otherwise
    a CPU core.
    """
    has_gpus = topology is not None and topology.has_gpus
    base = ESTIMATES if device == "gpu" or (device is None and has_gpus) else DEFAULTS
    if topology is None and bandwidth is None:
        return replace(base, guess=f"links of {bandwidth_text(base.bandwidth)}, {base.guess}")
    return base if bandwidth is None else replace(base, bandwidth=bandwidth)


def by_nccl(topology: Topology | None, calibration: Calibration) -> bool:
    """Return whether NCCL can sum dense tensors: kernels are a GPU's, or were measured where ranks are GPUs."""
    return calibration.gpu or (not calibration.guess and topology is not None and topology.has_gpus)
