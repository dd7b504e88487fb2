"""What one rank does in a call under ``balanced by holders``, as straight-line steps over numbered rows.

    HolderSequence = rank size  cuts: Cut*  rows: number*  peers  phases: Stretch+  complete: number*

The first phase is the announce: its parcels carry index sets, and number k is the set of rank k. Then the ranks
agree; in later phases numbers are those of rows, and ``rows[number]`` is the cut whose slots they have. Rows 0 to
``size - 1`` are this rank's own of all parts. No parcel of rows is announced: all counts are known. ``peers`` are the
ranks to which or from which there are such parcels; with these it compares what was agreed on.

Cuts are those of ``zenc.codegen.cuts``. The statements are what ``zenc.runtime.cpu.holder_executor`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zenc.codegen.cuts import Cut, Cuts, Key, Ranks
from zenc.codegen.statements import Kind, Merge, Parcel, Statement, Stretch, Transfer
from zenc.plan.ir import Phase, Plan
from zenc.plan.rank_schedule import Message, RankSchedule, RankStep, program
from zenc.verify.incoming import Cargo, Sets, verify_with_sets


@dataclass(frozen=True, slots=True)
class HolderSequence:
    rank: int
    size: int
    cuts: tuple[Cut, ...]
    rows: tuple[int, ...]
    peers: tuple[int, ...]
    phases: tuple[Stretch, ...]
    complete: tuple[int, ...]


def holder_sequence(plan: Plan, size: int, rank: int) -> HolderSequence:
    """What ``rank`` of ``size`` does under ``plan``, whose mapping is by holders; raises VerificationError."""
    rounds, _, sets, cargo = verify_with_sets(plan, size, rank)
    steps = program(rounds, rank)
    lowering = _Lowering(rank, size, cargo, plan.one_shot(plan.pushes[0]))
    push, pull = lowering.pushed(plan.pushes[0], steps), lowering.pulled(plan.pulls[0], steps)
    cuts, rows = lowering.cuts.made(), lowering.cuts.numbers(lowering.rows)
    phases = (_announced(plan, steps, sets, rank), push, pull)
    return HolderSequence(rank, size, cuts, rows, _peers(push, pull), phases, lowering.complete())


def _announced(plan: Plan, steps: RankSchedule, sets: Sets, rank: int) -> Stretch:
    """The announce, as a phase over the sets of all ranks."""
    here, transfers = {rank}, []
    for step in steps.announce:
        sends = tuple(Parcel(to.peer, _named(here, to), announced=True, counted=True) for to in step.sends)
        receives = tuple(
            Parcel(of.peer, sets[step.number, of.peer], announced=True, counted=True) for of in step.receives
        )
        here |= {origin for parcel in receives for origin in parcel.segments}
        transfers.append(Transfer(step.number, sends, receives))
    assert plan.announce is not None
    return Stretch("announce", plan.announce.format, tuple(transfers))


def _named(here: set[int], message: Message) -> tuple[int, ...]:
    """What a message of the announce carries: all sets that are here, or those that it names."""
    named = {piece.origin for piece in message.pieces}
    return tuple(origin for origin in sorted(here) if origin in named or -1 in named)


def _peers(*phases: Stretch) -> tuple[int, ...]:
    transfers = [each for phase in phases for each in phase.statements if isinstance(each, Transfer)]
    return tuple(sorted({parcel.peer for each in transfers for parcel in (*each.sends, *each.receives)}))


@dataclass(slots=True)
class _Lowering:
    """Plays the program of one rank: ``rows[number]`` are a part and whose sum it is, ``held[part]`` are numbers."""

    rank: int
    size: int
    cargo: Cargo
    one_shot: bool
    cuts: Cuts = field(default_factory=Cuts)
    rows: list[Key] = field(default_factory=list)
    held: list[list[int]] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    def pushed(self, phase: Phase, steps: RankSchedule) -> Stretch:
        self.held = [[self._made(part, (self.rank,), marked=True)] for part in range(self.size)]
        for step in steps.pushes[0]:
            self._join(self._transfer(step, self._expected(step)))
        for part, held in enumerate(self.held):
            if part not in steps.needless[0]:
                self.held[part] = [self._merged(sorted(held, key=lambda number: self.rows[number]))]
        return self._closed("push", phase)

    def pulled(self, phase: Phase, steps: RankSchedule) -> Stretch:
        everyone = tuple(range(self.size))
        for step in steps.pulls[0]:
            expected = {message.peer: [(piece.part, everyone) for piece in message.pieces] for message in step.receives}
            for numbers in self._transfer(step, expected).values():
                for number in numbers:
                    self.held[self.rows[number][0]] = [number]
        return self._closed("pull", phase)

    def complete(self) -> tuple[int, ...]:
        return tuple(number for (number,) in self.held)

    def _closed(self, kind: Kind, phase: Phase) -> Stretch:
        statements, self.statements = tuple(self.statements), []
        return Stretch(kind, phase.format, statements)

    def _made(self, part: int, ranks: Ranks, *, marked: bool = False) -> int:
        """The number of new rows."""
        self.cuts.ask((part, ranks), marked=marked)
        self.rows.append((part, ranks))
        return len(self.rows) - 1

    def _expected(self, step: RankStep) -> dict[int, list[Key]]:
        """What comes from each peer in a step of the push: merged, or under one-shot aggregation by ranks."""
        found: dict[int, list[Key]] = {}
        for message in step.receives:
            keys = found[message.peer] = []
            for part in sorted({piece.part for piece in message.pieces}):
                ranks = self.cargo[step.number, message.peer, part]
                keys += [(part, (rank,)) for rank in ranks] if self.one_shot else [(part, ranks)]
        return found

    def _transfer(self, step: RankStep, expected: Mapping[int, list[Key]]) -> dict[int, list[int]]:
        """Exchange the messages of a step. Returns what arrives from each peer."""
        sends = tuple(Parcel(to.peer, self._load(to), announced=False, counted=False) for to in step.sends)
        arrived = {peer: [self._made(*key) for key in keys] for peer, keys in expected.items()}
        receives = tuple(
            Parcel(peer, tuple(numbers), announced=False, counted=False) for peer, numbers in arrived.items()
        )
        self.statements.append(Transfer(step.number, sends, receives))
        return arrived

    def _load(self, message: Message) -> tuple[int, ...]:
        """What is held of a message's parts, by part and ranks; of one contributor, where a piece names one."""
        numbers = [
            number
            for piece in message.pieces
            for number in self.held[piece.part]
            if piece.origin < 0 or self.rows[number][1] == (piece.origin,)
        ]
        return tuple(sorted(numbers, key=lambda number: self.rows[number]))

    def _join(self, arrived: Mapping[int, list[int]]) -> None:
        """Merge what came with what is held, in the order of the holders; or collect it, under one-shot."""
        came: dict[int, list[tuple[int, int]]] = {}
        for peer, numbers in arrived.items():
            for number in numbers:
                came.setdefault(self.rows[number][0], []).append((peer, number))
        for part, pieces in came.items():
            ordered = sorted([*((self.rank, number) for number in self.held[part]), *pieces])
            numbers = [number for _, number in ordered]
            self.held[part] = numbers if self.one_shot else [self._merged(numbers)]

    def _merged(self, numbers: list[int]) -> int:
        """The sum of rows of one part, added in this order."""
        if len(numbers) == 1:
            return numbers[0]
        for number in numbers:
            self.cuts.ask(self.rows[number], marked=True)
        ranks = sorted({rank for number in numbers for rank in self.rows[number][1]})
        result = self._made(self.rows[numbers[0]][0], tuple(ranks), marked=True)
        self.statements.append(Merge(result, tuple(numbers)))
        return result
