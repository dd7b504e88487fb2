"""The steps of a scheme's drawing: moves, and the contributions that every rank holds before and after each.

    Steps     = Shown DrawnStep*
    DrawnStep = Phase number Move* before after LossMark*       # Holdings
    LossMark = rank part what # the keeper of a loss before the moves
    Move      = src dst first..last origin place heat?          # the load of the links on its route

A part is a piece of the tensor, and a contribution is one rank's summand of it. The plan is proved while its moves are
played, so the drawing is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.draw.shown import Heat, LinkHeat, Shown, StepRange, ensure_ranks, heat_of
from zenc.errors import Diagnostic, DrawingError
from zenc.plan.ir import SET_KINDS, Phase, PhaseKind, Plan
from zenc.plan.tier_layout import first_part, levels_of
from zenc.plan.unroll import Round, Rounds, expand
from zenc.rank_ir.exchanges import exchange_table
from zenc.scheme.compression import Fixed
from zenc.topology.model import Topology
from zenc.verify.losses import BEGIN, SELECTED
from zenc.verify.proof import Proof, prove
from zenc.verify.provenance import Deliveries, members_of

Holdings: TypeAlias = npt.NDArray[np.bool_]
"""Mask [rank, part, contributor], [size, parts, size]: whether a rank holds a rank's contribution to a part."""

LossesOfSteps: TypeAlias = "Mapping[tuple[str, int], Sequence[LossMark]]"
"""Mapping of phases, by name, and steps to the losses that are kept there."""

MOST_RANKS = 16
MOST_MOVES = 2_500
"""Most ranks and moves of one drawing, so that an arrow can be followed; ``zenc.draw.matrix`` is for more ranks."""


@dataclass(frozen=True, slots=True)
class Move:
    """Parts ``first`` .. ``last`` from rank ``src`` to ``dst``; ``place`` is the FILE:LINE:COLUMN of the send.

    ``origin`` is the rank whose contributions alone are sent, below 0 for all. ``heat`` is the load of the busiest link
    on its route, in a drawing on a topology.
    """

    src: int
    dst: int
    first: int
    last: int
    origin: int
    place: str
    heat: LinkHeat | None


MERGED = "merged"
"""The word for a loss of a sum, which is made after the moves of a step."""


@dataclass(frozen=True, slots=True)
class LossMark:
    """A loss that ``rank`` keeps: that of ``part``, by a selection, a code or rounding, as ``what`` says."""

    rank: int
    part: int
    what: str


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """Step ``number`` of a phase, from 1: the moves that run together, and the pieces before and after them.

    ``kept`` are the losses that are made right before them, or of their sums, each with its keeper. In an announce,
    which moves index sets, ``before`` and ``after`` are [size, 1, size]: the ranks whose index sets a rank has; in a
    directory there is a part for each rank.
    """

    plan_phase: Phase
    number: int
    moves: tuple[Move, ...]
    before: Holdings
    after: Holdings
    kept: tuple[LossMark, ...] = ()

    @property
    def phase(self) -> str:
        """The name of the phase, with its tier."""
        return self.plan_phase.name

    @property
    def announces(self) -> bool:
        """Return whether index sets move, or owners of the units in them, and no values."""
        return self.plan_phase.kind in SET_KINDS

    @property
    def whole(self) -> bool:
        """Return whether the tensor is one part, so that every move carries all of it."""
        return bool(self.before.shape[1] == 1)


@dataclass(frozen=True, slots=True, eq=False)
class Steps(Shown):
    """The steps of a drawing, with each of their moves."""

    steps: tuple[DrawnStep, ...]

    @property
    def moves(self) -> int:
        """The number of moves that are shown."""
        return sum(len(step.moves) for step in self.steps)

    @property
    def drawn(self) -> int:
        """The number of steps that are shown."""
        return len(self.steps)

    def to_json(self) -> dict[str, object]:
        """Return the moves as JSON data; an origin of null sends all pieces."""
        steps = [
            {
                "phase": each.phase,
                "number": each.number,
                "moves": list(map(_move_json, each.moves)),
                **({"kept": list(map(asdict, each.kept))} if each.kept else {}),
            }
            for each in self.steps
        ]
        return {**self.head_json(), "steps": steps}


def steps_of(
    plan: Plan,
    size: int,
    choice: StepRange | None = None,
    topology: Topology | None = None,
    expected: ExpectedBytes | None = None,
) -> Steps:
    """Return the chosen steps of ``plan`` among ``size`` ranks; with ``expected``, the loads of links of ``topology``.

    Raises DrawingError for too many to draw, or none, VerificationError as ``verify`` does, and
    TopologyError where a move has no route.
    """
    choice = choice or StepRange()
    ensure_ranks(size, MOST_RANKS)
    rounds = expand(plan, size)
    recorder = _Recorder(plan, rounds, heat_of(rounds, topology, expected))
    kept = losses_kept(plan, rounds, prove(plan, rounds, recorder.observe))
    chosen = tuple(step for step in recorder.steps(rounds, kept) if choice.takes(step.plan_phase, step.number))
    steps = Steps(rounds, recorder.heat, chosen)
    if steps.moves > MOST_MOVES:
        message = f"{steps.moves:,} moves in {steps.drawn} steps are more than a drawing can show ({MOST_MOVES:,})"
        raise DrawingError(Diagnostic("drawing-too-large", message, help="draw some: --phase push --steps 1..4"))
    steps.ensure_any(choice)
    return steps


class _Recorder:
    """Observer of the proof that records the pieces of every rank before and after each step.

    Index sets are announced before values move, and are recorded apart from them.
    """

    def __init__(self, plan: Plan, rounds: Rounds, heat: Heat | None) -> None:
        self.heat, size = heat, rounds.size
        sets = plan.parts_in(plan.of(*SET_KINDS)[0], size) if plan.of(*SET_KINDS) else 1
        self.index_sets, self.values = _own_contributions(size, sets), _own_contributions(size, rounds.parts)
        self.before_and_after: list[tuple[Holdings, Holdings]] = []
        self.groups = _SetsOfGroups(plan, rounds) if plan.across is not None else None
        self.drawn_sets = self.groups.holdings(self.index_sets) if self.groups else self.index_sets

    def observe(self, phase: Phase, number: int, deliveries: Deliveries) -> None:
        announcing = phase.kind in SET_KINDS
        before = self.index_sets if announcing else self.values
        after, table = before.copy(), exchange_table(phase, deliveries, len(before))
        row, contributor = members_of(table.ranks)
        after[table.dst[row], table.part[row], contributor] = True
        if announcing:
            self.index_sets, before = after, self.drawn_sets
            after = self.drawn_sets = self.groups.holdings(after) if self.groups else after
        else:
            self.values = after
        self.before_and_after.append((before, after))
        if self.heat:
            self.heat.observe(phase, number, deliveries)

    def steps(self, rounds: Rounds, kept: LossesOfSteps) -> Iterator[DrawnStep]:
        for (phase, number, round_), (before, after) in zip(rounds, self.before_and_after, strict=True):
            moves, losses = tuple(self._moves(phase, number, round_, rounds)), tuple(kept.get((phase.name, number), ()))
            yield DrawnStep(phase, number, moves, before, after, losses)

    def _moves(self, phase: Phase, number: int, round_: Round, rounds: Rounds) -> Iterator[Move]:
        heats = self.heat.of if self.heat else {}
        columns = (round_.src, round_.dst, round_.first, round_.last, round_.origin, round_.line)
        for src, dst, first, last, origin, line in np.stack(columns, axis=1).tolist():
            span = rounds.sends[line].span
            heat = heats.get((phase.name, number, src, dst))
            move = Move(src, dst, first, last, origin, span.name if span else "", heat)
            yield self.groups.move(move) if self.groups and phase.kind in SET_KINDS else move


class _SetsOfGroups:
    """Index sets of groups of an outermost tier, as parts of the tensor: that of a member is the part that it will own.

    So a drawing has them in the places of values. In a directory they are the parts that its members keep.
    """

    def __init__(self, plan: Plan, rounds: Rounds) -> None:
        levels = levels_of(plan, rounds.size)
        ranks = np.arange(rounds.size)
        self.parts, self.members, self.inner = rounds.parts, levels[-1].members, levels[-1].inner
        self.first, self.gathers = first_part(levels[:-1], ranks), not plan.by_directory(rounds.size)

    def holdings(self, sets: Holdings) -> Holdings:
        """Return the ``sets`` [size, parts of sets, size] as parts of the tensor, [size, parts, size]: one a member."""
        size = len(sets)
        of_members = np.asarray(sets.reshape(size, sets.shape[1], self.members, self.inner).any(axis=3))
        if self.gathers:  # a part a member, which is there or not
            of_members = np.broadcast_to(of_members[:, 0, :, None], (size, self.members, self.members))
        found = np.zeros((size, self.parts, size), dtype=bool)
        rank, place = np.arange(size)[:, None], self.first[:, None] + np.arange(self.members)
        found[rank, place] = np.repeat(of_members, self.inner, axis=2)
        return found

    def move(self, move: Move) -> Move:
        """Return ``move`` with the numbers of the tensor's parts."""
        first = int(self.first[move.src])
        if not self.gathers:
            return replace(move, first=first + move.first, last=first + move.last)
        own = first + (move.src if move.origin < 0 else move.origin) // self.inner
        return replace(move, first=own, last=own)


def losses_kept(plan: Plan, rounds: Rounds, proof: Proof) -> LossesOfSteps:
    """Return, by phase and step, from 1, the losses made before its moves; empty where losses are not kept."""
    keepers, found = proof.keepers, dict[tuple[str, int], list[LossMark]]()
    if keepers is None or plan.feedback is None or plan.votes:
        return found
    played = [(phase, number) for phase, number, _ in rounds if phase.kind not in SET_KINDS]
    first = plan.of(PhaseKind.PUSH)[0]
    if isinstance(first.code, Fixed) and rounds.size > 1:
        everywhere = [LossMark(rank, part, "rounded") for rank in range(rounds.size) for part in range(rounds.parts)]
        found[first.name, 1] = everywhere
    columns = (each.tolist() for each in (keepers.phase, keepers.step, keepers.rank, keepers.part))
    for place, step, rank, part in sorted(zip(*columns, strict=True)):
        at = step if step > BEGIN else SELECTED - step
        number = played[at - 1][1] if at > 0 else 1
        what = "encoded" if step >= BEGIN else "selected" if step == SELECTED else MERGED
        found.setdefault((plan.phases[place].name, number), []).append(LossMark(rank, part, what))
    return found


def _own_contributions(size: int, parts: int) -> Holdings:
    holdings = np.zeros((size, parts, size), dtype=bool)
    holdings[np.arange(size), :, np.arange(size)] = True
    return holdings


def _move_json(move: Move) -> dict[str, object]:
    fields = {**asdict(move), "origin": None if move.origin < 0 else move.origin}
    heat = fields.pop("heat")
    return {**fields, "load": heat} if heat else fields
