"""The part of a scheme that is drawn, and the load of the links on the way of every move, for its colour.

StepRange = phase? first..last                                # the steps asked for
Shown     = Rounds Heat?                                      # all steps, and all loads
Heat      = limit (phase, number, src, dst) -> LinkHeat       # in seconds; limit is the greatest of all steps
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.link_load import LinkLoadObserver, Routes, routes
from zenc.common.wording import count
from zenc.draw.colour import RAMP
from zenc.errors import Diagnostic, DrawingError
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import Rounds
from zenc.topology.model import Topology
from zenc.verify.provenance import Deliveries

STEP = 4
"""Factor between the loads of two colours."""


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps wanted: of one phase or of all, from ``first`` to ``last`` of each phase, both included."""

    phase: str | None = None
    first: int = 1
    last: int | None = None

    def takes_phase(self, phase: Phase) -> bool:
        """Return whether ``phase`` is wanted; "push" means the pushes of all tiers."""
        return self.phase in (None, phase.name, phase.kind.value)

    def takes(self, phase: Phase, number: int) -> bool:
        """Return whether step ``number`` of ``phase`` is wanted."""
        return self.takes_phase(phase) and self.first <= number and (self.last is None or number <= self.last)


@dataclass(frozen=True, slots=True)
class LinkHeat:
    """The busiest link on the way of a message, in its step, and the seconds that it is busy."""

    link: str
    seconds: float


@dataclass(slots=True)
class Heat:
    """The loads of moves, recorded while a plan is played and ``observe`` is called with every round.

    ``limit``: the most seconds that any move so far keeps a link busy, which the hottest colour stands for.
    """

    routes: Routes
    meter: LinkLoadObserver
    of: dict[tuple[str, int, int, int], LinkHeat] = field(default_factory=dict)
    limit: float = 0.0

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Record the deliveries ``moved`` in round ``number`` of ``phase``."""
        before = self.meter.total.copy()
        self.meter.observe(phase, number, moved)
        busy = (self.meter.total - before) / self.meter.widths
        size, loads = self.routes.topology.size, self.meter.loads()
        src, dst = np.divmod(np.unique(moved.src * size + moved.dst), size)
        pair, link = self.routes.over(src, dst)
        for i, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            mine = link[pair == i]
            worst = int(mine[busy[mine].argmax()])
            self.of[phase.name, number, one, other] = LinkHeat(loads.name(worst), float(busy[worst]))
            self.limit = max(self.limit, float(busy[worst]))


def heat_of(rounds: Rounds, topology: Topology | None, expected: ExpectedBytes | None) -> Heat | None:
    """Return an observer of the proof, which records the loads of links of ``topology`` on the routes of moves."""
    if topology is None or expected is None:
        return None
    found = routes(rounds, topology)
    return Heat(found, LinkLoadObserver(found, expected))


def heat_class(seconds: float, limit: float) -> int:
    """Return the place in the ramp: the last one for the greatest load, one less for each factor ``STEP`` below it."""
    steps = math.log(limit / seconds, STEP) if 0 < seconds < limit else 0.0 if seconds else len(RAMP)
    return max(0, len(RAMP) - 1 - int(steps))


@dataclass(frozen=True, slots=True, eq=False)
class Shown(ABC):
    """The common parts of drawings: all ``played`` rounds of a scheme, and the loads of links on a topology."""

    played: Rounds
    heat: Heat | None

    @property
    @abstractmethod
    def moves(self) -> int:
        """The number of moves that are shown."""

    @property
    @abstractmethod
    def drawn(self) -> int:
        """The number of steps that are shown."""

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.played.size

    @property
    def parts(self) -> int:
        """The number of parts of the tensor."""
        return self.played.parts

    @property
    def rounds(self) -> dict[str, int]:
        """Name -> number of steps of each phase of the whole scheme, in their order."""
        return {phase.name: len(played) for phase, played in self.played.phases}

    @property
    def topology(self) -> str:
        """The name of the topology, empty without one."""
        return self.heat.routes.topology.name if self.heat else ""

    @property
    def limit(self) -> float:
        """The most seconds that a move of the whole scheme keeps a link busy; 0 without a topology."""
        return self.heat.limit if self.heat else 0.0

    def title(self, plan: Plan) -> str:
        """Return the title of a picture of ``plan``."""
        return f"{plan.scheme} among {count(self.size, 'rank')}"

    @property
    def facts(self) -> str:
        """Ranks, parts, steps and moves, in words."""
        phases = ", ".join(f"{phase} {count(number, 'step')}" for phase, number in self.rounds.items())
        facts = [count(self.size, "rank"), count(self.parts, "part"), phases, count(self.moves, "move")]
        if self.drawn < sum(self.rounds.values()):
            facts[-1] += f" in the {count(self.drawn, 'step')} shown"
        return " \N{MIDDLE DOT} ".join(facts)

    @property
    def scale(self) -> str:
        """The meaning of the colours of loads."""
        return (
            f"how long the busiest link of {self.topology} on the way is busy in the step; each colour stands for "
            f"loads {STEP} times those of the one before it."
        )

    def head_json(self) -> dict[str, object]:
        """Return the head of a drawing as JSON data, without the moves."""
        head: dict[str, object] = {"size": self.size, "parts": self.parts, "rounds": self.rounds}
        return {**head, "topology": self.topology} if self.heat else head

    def ensure_any(self, choice: StepRange) -> None:
        """Raise DrawingError (``no-such-step``) where steps were asked for, and none of them exists."""
        chosen = [len(played) for phase, played in self.played.phases if choice.takes_phase(phase)]
        if not self.drawn and (any(chosen) or not chosen):  # a phase without moves has no steps: no mistake
            counts = ", ".join(f"{phase} {number}" for phase, number in self.rounds.items())
            message = f"among {self.size} ranks the scheme has no such step"
            raise DrawingError(Diagnostic("no-such-step", message, notes=(f"steps of each phase: {counts}",)))


def ensure_ranks(size: int, most: int) -> None:
    """Raise DrawingError (``drawing-too-large``) for more ranks than ``most``."""
    if size > most:
        message = f"a drawing has room for {most} ranks, not for {size:,}"
        raise DrawingError(Diagnostic("drawing-too-large", message, help="zenc explain counts what can't be drawn"))
