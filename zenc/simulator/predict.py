"""The prediction of a call: seconds, and the bytes of ranks, phases and links.

plan x size x profile --weigh--> messages --classes--> Program --run--> Prediction
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.common.limits import LIMITS
from zenc.errors import CostError, Diagnostic
from zenc.gradients.profile import Profile
from zenc.plan.expressions import Ints
from zenc.plan.ir import Plan
from zenc.simulator.calibration import DEFAULTS, FAN_IN_SHARE, Calibration
from zenc.simulator.compute_model import Computing, computing
from zenc.simulator.event_sim import Clock, Costs, SimulatedSpan, run
from zenc.simulator.flowing import early_steps, joined
from zenc.simulator.network import Cluster, Network, Switch, star_of
from zenc.simulator.symmetry import ClassProgram, Stage, bytes_by_rank, program
from zenc.topology.model import Topology

Floats = npt.NDArray[np.float64]

Weigh: TypeAlias = Callable[[int, Ints], Floats]
"""Counted bytes of messages: of a step of the call, and of the ranks that send, [messages] each."""

MOST_EXACT = 64
"""Most classes of ranks for which every end of a message is an event of its own."""
COARSE, EXACT = 0.02, 1e-9
"""The share of their time within which messages of more classes end together, and of fewer."""


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """A phase: ``seconds`` of the rank that is in it longest, and the bytes of the busiest one."""

    steps: int
    seconds: float
    sent: float
    received: float

    def to_json(self) -> dict[str, float]:
        """Return JSON data; seconds, and bytes of the busiest rank."""
        return {name: getattr(self, name) for name in ("steps", "seconds", "sent", "received")}


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The predicted call of ``plan`` on ``size`` ranks: ``seconds`` from the call to the last rank's result.

    ``sent`` and ``received`` are bytes of the busiest rank, headers included; ``kernels`` the seconds of the rank that
    computes longest, ``pack`` of these before the first message and ``expand`` after the last step, on every rank.
    ``bottleneck`` is the link that carries for longest, for ``busy`` seconds and ``carried`` bytes.
    ``spans``, of ``classes`` kinds of ranks, are there where a trace was asked for.
    """

    scheme: str
    size: int
    seconds: float
    sent: float
    received: float
    messages: int
    kernels: float
    phases: dict[str, PhaseCost]
    bottleneck: str
    busy: float
    carried: float
    pack: float
    expand: float
    classes: int
    spans: tuple[SimulatedSpan, ...] = ()
    of: ClassProgram | None = None

    @property
    def steps(self) -> int:
        """The number of steps of all phases."""
        return sum(phase.steps for phase in self.phases.values())

    def to_json(self) -> dict[str, Any]:
        """Return all but the trace, as JSON data."""
        left_out = ("phases", "classes", "spans", "of")
        own = {name: getattr(self, name) for name in self.__slots__ if name not in left_out}
        phases = {name: phase.to_json() for name, phase in self.phases.items()}
        return {**own, "steps": self.steps, "phases": phases}


def predict(
    plan: Plan,
    size: int,
    profile: Profile,
    topology: Topology | None = None,
    calibration: Calibration = DEFAULTS,
    *,
    apart: bool = False,
    flows: bool = True,
    coarse: bool = False,
) -> Prediction:
    """Return the predicted call of ``plan`` on ``size`` ranks, for a gradient like ``profile``.

    Without a ``topology`` all ranks are on one switch, by links of the calibration's bandwidth. ``apart`` simulates
    every rank by itself; otherwise one stands for all that are alike. ``flows``: trees on CPUs pull while they push.
    ``coarse``: messages that end at nearly the same time are one event, as where many ranks differ. ``plan`` counts as
    proved.

    Raises VerificationError for moves that make no sense, TopologyError for another number of ranks
    (``wrong-topology-size``) and for moves without a way (``no-route``).
    """
    of = network(topology, size, calibration)
    return predict_on(plan, profile, of, calibration, apart=apart, flows=flows, coarse=coarse)


def ensure_simulated(size: int) -> None:
    """Raise CostError (``bad-load``) for more ranks than are simulated: there are as many routes as pairs of them."""
    if problem := LIMITS["simulated ranks"].problem(size):
        help = "take fewer: schemes keep their order as ranks are added"
        raise CostError(Diagnostic("bad-load", f"the number of ranks that are simulated {problem}", help=help))


def network(topology: Topology | None, size: int, calibration: Calibration) -> Network:
    """Return the links of ``topology``, or of a switch.

    Raises CostError: ``wrong-topology-size`` for another ``size``, ``bad-load`` for more ranks than are simulated.
    """
    ensure_simulated(size)
    if topology is not None and topology.size != size:
        message = f"{topology.name} has {topology.size} ranks, and the scheme is to run on {size}"
        raise CostError(Diagnostic("wrong-topology-size", message, help="leave out the number of ranks"))
    if topology is None:
        return Switch(size, calibration.bandwidth)
    return star_of(topology) or Cluster(topology)


def predict_on(
    plan: Plan,
    profile: Profile,
    network: Network,
    calibration: Calibration = DEFAULTS,
    *,
    trace: bool = False,
    apart: bool = False,
    counted: Weigh | None = None,
    flows: bool = True,
    coarse: bool = False,
) -> Prediction:
    """Predict as ``predict`` does, on a known network: routes are found once for many plans.

    ``counted`` returns the bytes of messages where they depend on values, as under a range coder; kernels work on as
    many values as without it. Each rank is then simulated for itself.
    """
    expected, apart = ExpectedBytes(plan, network.size, profile, calibration.gpu), apart or counted is not None
    of = program(expected, network, apart)
    bandwidths = network.bandwidths[of.link_member] * calibration.efficiency
    computed, slow = computing(of, expected, calibration), calibration.slowdown(expected.size)
    of = of if counted is None else _weighed(of, counted)
    costs = _costs(of, computed, slow, calibration, bandwidths, network)
    tolerance = COARSE if coarse or (len(of.sizes) > MOST_EXACT and not apart) else EXACT
    early = early_steps(plan, expected.size) if flows and not calibration.gpu else 0
    if early:
        both = joined(of, early, calibration.step)
        clock = both.clock(run(both.program(of), both.costs(costs), bandwidths, tolerance, trace))
    else:
        clock = run(of, costs, bandwidths, tolerance, trace)
    return _prediction(plan, computed, slow, network, of, clock)


def in_turn(seconds: Sequence[float], ready: Sequence[float]) -> list[float]:
    """Return the end of each of several collectives, of ``seconds`` each, whose gradients are ``ready`` at these times.

    Collectives run one after another, in the order of their gradients, as a communication hook runs them: beside the
    rest of the backward pass, but not beside each other. The ends are in the order of the arguments.
    """
    ends, free = [0.0] * len(seconds), 0.0
    for at in sorted(range(len(seconds)), key=lambda i: ready[i]):
        free = max(free, ready[at]) + seconds[at]
        ends[at] = free
    return ends


def _weighed(of: ClassProgram, counted: Weigh) -> ClassProgram:
    """Return ``of`` with the bytes that were counted."""
    stages = (replace(stage, bytes=counted(at, of.member[stage.src])) for at, stage in enumerate(of.stages))
    return replace(of, stages=tuple(stages))


def _costs(
    of: ClassProgram, computed: Computing, slow: float, calibration: Calibration, bandwidths: Floats, network: Network
) -> Costs:
    ranks, latencies = len(of.sizes), network.latencies[of.link_member]
    before, loads, delays = [], [], []
    credit = np.full(len(bandwidths), calibration.burst)
    for stage, work in zip(of.stages, computed.works, strict=True):
        sends = np.bincount(stage.src, stage.out, minlength=ranks)
        before.append(np.asarray(calibration.step + sends * calibration.message + work.before * slow, np.float64))
        load = _loads(stage, calibration, ranks)
        if calibration.burst:
            load, credit = _less(load, stage, credit)
        loads.append(load)
        on_way = stage.times * of.link_sizes[stage.link] * latencies[stage.link]
        together = np.bincount(stage.flow, on_way, minlength=len(load))
        delays.append(np.asarray(together / (stage.out * of.sizes[stage.src]), np.float64))
    beside, after = ([getattr(work, name) * slow for work in computed.works] for name in ("beside", "after"))
    start = np.full(ranks, computed.first * slow)
    return Costs(before, beside, after, loads, delays, start, calibration.buffer)


def _loads(stage: Stage, calibration: Calibration, ranks: int) -> Floats:
    """Return the bytes of each flow [flows], with its receiver's loss to others that come at the same time.

    A receiver idles while its senders are busy with others. So it has its full loss only where both ends carry as much;
    an end with less to carry is there in time, and waiting bytes fill the gaps.
    """
    came = np.bincount(stage.dst, stage.into, minlength=ranks)[stage.dst]
    received = np.bincount(stage.dst, stage.into * stage.bytes, minlength=ranks)[stage.dst]
    sent = np.bincount(stage.src, stage.out * stage.bytes, minlength=ranks)[stage.src]
    alike = np.minimum(sent, received) / np.maximum(np.maximum(sent, received), 1e-9)
    beyond = np.maximum(stage.bytes - calibration.fan_in_from / np.maximum(came, 1), 0.0)
    lost = np.minimum(FAN_IN_SHARE * beyond, calibration.fan_in) * alike
    return np.asarray(stage.bytes + lost * (came - 1) / np.maximum(came, 1))


def _less(load: Floats, stage: Stage, credit: Floats) -> tuple[Floats, Floats]:
    """Return ``load`` without the bytes carried at once, as far as links have ``credit``; and the rest of that."""
    total = np.bincount(stage.link, stage.times * load[stage.flow], minlength=len(credit))
    share = np.divide(credit, total, out=np.zeros(len(credit)), where=total > 0)
    free = np.full(len(load), np.inf)
    np.minimum.at(free, stage.flow, share[stage.link])
    return load * (1 - np.minimum(free, 1.0)), np.maximum(credit - total, 0.0)


def _prediction(
    plan: Plan, computed: Computing, slow: float, network: Network, of: ClassProgram, clock: Clock
) -> Prediction:
    sent, received = bytes_by_rank(of.stages, of.sizes)
    carried, load = np.zeros((2, len(of.link_sizes)))
    bandwidths = network.bandwidths[of.link_member]
    for stage in of.stages:
        carried += np.bincount(stage.link, stage.times * stage.bytes[stage.flow], minlength=len(carried))
    load = carried / bandwidths
    worst = int(load.argmax()) if len(load) else -1
    messages = sum(float(stage.out @ of.sizes[stage.src]) for stage in of.stages)
    return Prediction(
        scheme=plan.scheme,
        size=network.size,
        seconds=float(clock.ends.max(initial=0.0)) + computed.last * slow,
        sent=float(sent.max(initial=0.0)),
        received=float(received.max(initial=0.0)),
        messages=round(messages),
        kernels=computed.busiest * slow,
        phases=_phases(of, clock),
        bottleneck=network.label(int(of.link_member[worst])) if worst >= 0 and load[worst] > 0 else "",
        busy=float(load[worst]) if worst >= 0 else 0.0,
        carried=float(carried[worst]) if worst >= 0 else 0.0,
        pack=computed.first * slow,
        expand=computed.last * slow,
        classes=len(of.sizes),
        spans=tuple(clock.spans),
        of=of,
    )


def _phases(of: ClassProgram, clock: Clock) -> dict[str, PhaseCost]:
    found: dict[str, PhaseCost] = {}
    names = dict.fromkeys(stage.phase.name for stage in of.stages)
    for name in names:
        stages = [(number, stage) for number, stage in enumerate(of.stages) if stage.phase.name == name]
        sent, received = bytes_by_rank([stage for _, stage in stages], of.sizes)
        seconds = float(clock.until[stages[-1][0]]) - float(clock.since[stages[0][0]])
        found[name] = PhaseCost(len(stages), seconds, float(sent.max()), float(received.max()))
    return found
