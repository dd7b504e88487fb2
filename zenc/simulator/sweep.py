"""Sweeps: many schemes at many points, the best of each first; as tables, and calls as traces.

Simulation   = Point* and skipped*
Point        = ranks density bandwidth SweepOutcome*          # best first
SweepOutcome = scheme seconds (profile -> Prediction)    # of a training step: all gradients, one after another
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from zenc.analysis.contribution import guesses
from zenc.analysis.fit import ensure_room
from zenc.common.wording import aligned, count, seconds_text, size_text
from zenc.errors import CostError, Diagnostic, TopologyError, VerificationError, ZencError
from zenc.gradients.profile import Profile
from zenc.plan.ir import Plan
from zenc.scheme.units import bandwidth_text
from zenc.simulator import compression_work
from zenc.simulator.calibration import Calibration, by_nccl
from zenc.simulator.event_sim import SimulatedSpan
from zenc.simulator.network import Network
from zenc.simulator.predict import Prediction, ensure_simulated, in_turn, network, predict_on
from zenc.simulator.symmetry import ClassProgram
from zenc.simulator.training import ddp
from zenc.topology.model import Topology

Planner = Callable[[int], Plan]
"""The proved plan of a scheme for a number of ranks; raises VerificationError where the scheme does not allow it."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class SweepPoint:
    """The setting of a simulation: ``topology``, or one switch with links of the calibration's bandwidth.

    ``profiles`` by name are the gradients of a step. ``ready`` is the time of each, in seconds from the start of the
    backward pass; 0 where not given.
    """

    size: int
    profiles: Mapping[str, Profile]
    topology: Topology | None
    calibration: Calibration
    ready: Mapping[str, float]

    def __post_init__(self) -> None:
        ensure_simulated(self.size)


@dataclass(frozen=True, slots=True, eq=False)
class SweepOutcome:
    """The outcome of a scheme: ``seconds`` until the last gradient is summed, from the start of the backward pass."""

    scheme: str
    seconds: float
    predictions: Mapping[str, Prediction]

    @property
    def sent(self) -> float:
        """Bytes of the busiest rank, of all gradients."""
        return sum(found.sent for found in self.predictions.values())

    @property
    def worst(self) -> Prediction:
        """The gradient that takes longest."""
        return max(self.predictions.values(), key=lambda found: found.seconds)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; seconds of a training step."""
        each = {name: found.to_json() for name, found in self.predictions.items()}
        return {"scheme": self.scheme, "seconds": self.seconds, "gradients": each}


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """The outcomes at one place, best first."""

    size: int
    density: float
    bandwidth: float | None
    outcomes: tuple[SweepOutcome, ...]

    def ratio(self, outcome: SweepOutcome) -> float:
        """Return the seconds of an outcome over those of the best."""
        best = self.outcomes[0].seconds
        return outcome.seconds / best if best else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; bandwidth in bytes a second, outcomes best first."""
        own = {"ranks": self.size, "density": self.density, "bandwidth": self.bandwidth}
        return {**own, "outcomes": [each.to_json() for each in self.outcomes]}


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """The result of a sweep; ``skipped`` names schemes left out at some numbers of ranks, ``notes`` the guesses."""

    points: tuple[Point, ...]
    skipped: tuple[Diagnostic, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the simulation as JSON data; bytes, seconds, bytes a second."""
        skipped = [str(diagnostic.message) for diagnostic in self.skipped]
        return {"points": [point.to_json() for point in self.points], "skipped": skipped, "notes": list(self.notes)}


LEFT_OUT = ("unmet-requirement", "tiers-do-not-divide", "tier-mismatch", "no-route", "memory-exceeded")
"""Errors of a scheme that does not suit such ranks, or such a topology, where others may."""

LeftOut: TypeAlias = list[tuple[str, SweepPoint, ZencError]]


def simulate(
    schemes: Mapping[str, Planner],
    places: Sequence[SweepPoint],
    progress: Progress = lambda _: None,
    trace: bool = False,
) -> Simulation:
    """Predict all ``schemes`` at all ``places``, and on GPUs NCCL's dense all-reduce.

    ``progress`` is told what comes next.

    Raises CostError (``nothing-to-simulate``, with the reason) where no scheme suits any of the numbers of ranks, or
    the topology, and raises as ``zenc.simulator.predict`` does.
    """
    points, left_out, guessed = list[Point](), LeftOut(), dict[str, None]()
    for place in places:
        way = network(place.topology, place.size, place.calibration)
        found = list(_outcomes(schemes, place, way, progress, left_out, guessed, trace))
        if found and by_nccl(place.topology, place.calibration):
            found.append(_outcome("DDP, dense", place, {n: _dense(p, way, place) for n, p in place.profiles.items()}))
        found.sort(key=lambda each: each.seconds)
        density = next(iter(place.profiles.values())).density
        bandwidth = None if place.topology else place.calibration.bandwidth
        points.append(Point(place.size, density, bandwidth, tuple(found)))
        guessed |= dict.fromkeys([place.calibration.note] if place.calibration.note else [])
    if not any(point.outcomes for point in points):
        message = f"none of the schemes is for {'this topology' if places[0].topology else 'such a number of ranks'}"
        why = [diagnostic for _, _, error in left_out[:8] for diagnostic in error.diagnostics]
        raise CostError([Diagnostic("nothing-to-simulate", message, help="below is why, and what would fit"), *why])
    skipped = tuple(_skipped(*each) for each in left_out)
    return Simulation(tuple(point for point in points if point.outcomes), skipped, tuple(guessed))


def _outcomes(
    schemes: Mapping[str, Planner],
    place: SweepPoint,
    way: Network,
    progress: Progress,
    left_out: LeftOut,
    guessed: dict[str, None],
    trace: bool,
) -> Iterator[SweepOutcome]:
    for name, planner in schemes.items():
        progress(f"{name}, {place.size:,} ranks")
        try:
            plan = planner(place.size)
            if place.topology:
                ensure_room(plan, place.topology, place.profiles.values())
            found = {
                each: predict_on(plan, profile, way, place.calibration, trace=trace)
                for each, profile in place.profiles.items()
            }
        except (VerificationError, TopologyError) as error:
            if error.diagnostics[0].id not in LEFT_OUT:
                raise
            left_out.append((name, place, error))
            continue
        if plan.is_lossy:
            told = "; ".join([*guesses(plan), compression_work.note(plan, place.calibration)])
            guessed[f"{name}: {told}"] = None
        yield _outcome(name, place, found)


def _outcome(name: str, place: SweepPoint, found: Mapping[str, Prediction]) -> SweepOutcome:
    ready = [place.ready.get(each, 0.0) for each in found]
    return SweepOutcome(name, max(in_turn([each.seconds for each in found.values()], ready)), found)


def _dense(of: Profile, way: Network, place: SweepPoint) -> Prediction:
    """Return NCCL's all-reduce of the whole tensor."""
    return ddp.dense(of.units * of.width, of.dtype, way, place.calibration, on_gpu=True)


def _skipped(scheme: str, place: SweepPoint, error: ZencError) -> Diagnostic:
    first = error.diagnostics[0]
    where = f"on {place.topology.name}" if place.topology else f"at {count(place.size, 'rank')}"
    message = f"{scheme} is left out {where}: {first.message}"
    return Diagnostic(first.id, message, help=first.help, severity="warning")


_HEAD = ("scheme", "time", "ratio", "busiest sends", "steps", "messages", "kernels", "bottleneck")


def text(of: Simulation) -> str:
    """Return a table for each point, best first; then the guesses among the numbers."""
    tables = "\n\n".join("\n".join(_table(point)) for point in of.points)
    return "\n".join([tables, *of.notes])


def _table(point: Point) -> Iterator[str]:
    where = f", {bandwidth_text(point.bandwidth)} a rank each way" if point.bandwidth else ""
    yield f"{point.size:,} rank{'s' if point.size > 1 else ''}, density {point.density:.3g}{where}"
    yield from aligned([_HEAD, *(_row(point, outcome) for outcome in point.outcomes)], range(1, len(_HEAD) - 1))


def _row(point: Point, outcome: SweepOutcome) -> tuple[str, ...]:
    worst = outcome.worst
    each = list(outcome.predictions.values())
    counts = sum(found.steps for found in each), sum(found.messages for found in each)
    whole = "it" if len(each) == 1 else "the longest"
    return (
        outcome.scheme,
        seconds_text(outcome.seconds),
        f"{point.ratio(outcome):.3f}",
        size_text(outcome.sent),
        f"{counts[0]:,}",
        f"{counts[1]:,}",
        seconds_text(sum(found.kernels for found in each)),
        f"{worst.bottleneck}: {worst.busy / worst.seconds:.0%} of {whole}" if worst.bottleneck else "-",
    )


MOST_TRACED = 64
"""Most rows of a trace; of more kinds of ranks the first ones are shown."""


def chrome_trace(of: Prediction) -> dict[str, Any]:
    """Return the steps of a call as Chrome's trace events (Trace Event Format), for Perfetto and chrome://tracing.

    A row for each rank, or for one rank of each kind where many are alike. Times are microseconds.
    """
    assert of.of is not None
    members, sizes = of.of.member.tolist(), of.of.sizes.tolist()
    events: list[dict[str, Any]] = [_meta("process_name", 0, f"{of.scheme}, {of.size} ranks")]
    shown = sorted(zip(members, sizes, strict=True))[:MOST_TRACED]
    for member, size in shown:
        alike = f" and {size - 1} alike" if size > 1 else ""
        events.append(_meta("thread_name", member, f"rank {member}{alike}"))
    for member, _ in shown:
        steps = [span for span in of.spans if members[span.rank] == member]
        ends = max((span.end for span in steps), default=of.pack)
        events.append(_bar(member, "pack", 0.0, of.pack))
        events += [bar for span in steps for bar in _step_bars(of.of, member, span)]
        events.append(_bar(member, "expand", ends, ends + of.expand))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _step_bars(of: ClassProgram, row: int, span: SimulatedSpan) -> Iterator[dict[str, Any]]:
    """Yield a step of one rank: before its messages are under way, while they are, and the work after them."""
    stage = of.stages[span.stage]
    sent = float((stage.out * stage.bytes)[stage.src == span.rank].sum())
    received = float((stage.into * stage.bytes)[stage.dst == span.rank].sum())
    told = {"sent bytes": round(sent), "received bytes": round(received)}
    name = f"{stage.phase.name} {stage.number}"
    for what, start, end in (
        ("starting", span.start, span.ready),
        (name, span.ready, span.sent),
        ("merge", span.sent, span.end),
    ):
        if end > start:
            yield _bar(row, what, start, end, told if what == name else {})


def _bar(row: int, name: str, start: float, end: float, told: Mapping[str, int] | None = None) -> dict[str, Any]:
    times = {"ts": start * 1e6, "dur": (end - start) * 1e6}
    return {"ph": "X", "name": name, "pid": 0, "tid": row, **times, "args": dict(told or {})}


def _meta(name: str, row: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 0, "tid": row, "args": {"name": text}}
