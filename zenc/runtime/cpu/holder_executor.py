"""One call under ``balanced by holders``: announce, agree, push, pull.

The announce is an exchange of segments without values, of one part, under one-shot aggregation. Everything behind it
travels as ``zenc.runtime.cpu.value_payload`` says. The semantics are those of ``zenc.plan.ir``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.rank_schedule import Message, RankSchedule, RankStep
from zenc.runtime.cpu.channel import Channel, Sending
from zenc.runtime.cpu.geometry import words_of
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.cpu.holder_kernels import HolderKernels
from zenc.runtime.cpu.inbox import Inbox, Room
from zenc.runtime.cpu.joined import Joined
from zenc.runtime.cpu.outbox import Outbox
from zenc.runtime.cpu.ownership import Agreement
from zenc.runtime.cpu.segments import HeldSegment, SegmentOps
from zenc.runtime.cpu.transport import Pending, Transport
from zenc.runtime.cpu.value_payload import HEADER, Piece, RowPacker, Rows
from zenc.runtime.layout import Contribution
from zenc.runtime.output import Summed
from zenc.runtime.ranges import within
from zenc.runtime.stats import PhaseStats
from zenc.scheme.model import Format
from zenc.verify.incoming import Cargo

Posted: TypeAlias = tuple[int, list[Piece], torch.Tensor, Pending | None]
"""A peer, what its message brings, a buffer of exactly its size, and the receive; None for one without values."""


class HolderExchange:
    """The state of one call on one rank: for every part the rows that it holds.

    ``whole`` makes segments of the tensor as one part, ``sets`` segments of that part without values.
    """

    def __init__(
        self,
        plan: Plan,
        program: RankSchedule,
        cargo: Cargo,
        transport: Transport,
        whole: SegmentOps,
        sets: SegmentOps,
        holding: HolderKernels,
        call: CallHeader,
        deadline: float,
        room: Room,
    ) -> None:
        self.announce, self.push, self.pull = program.phases
        self.cargo, self.whole, self.sets, self.holding = cargo, whole, sets, holding
        self.rank, self.size, self.call = transport.rank, transport.size, call
        self.one_shot, self.everyone = self.push.phase.keeps_apart, tuple(range(transport.size))
        self.link = Channel(plan.scheme, deadline, transport, call)
        self.inbox, self.outbox = Inbox(self.link, sets, room), Outbox(self.link, sets)
        self.inbox.one_shot = True
        self.stats = {kind.value: PhaseStats() for kind in PhaseKind}
        self.held: dict[int, list[Rows]] = {}
        self.complete: list[Rows] = []
        self.joined: Joined | None = None

    def counts_in(self, _: list[HeldSegment]) -> list[int]:
        """The units of each part that this rank contributed; known when the ranks have agreed."""
        return self.agreed.counts_of(self.rank)

    def pack(self, contribution: Contribution, divisor: int) -> list[HeldSegment]:
        """This rank's own gradient as one segment: its index set, and the values of it."""
        return self.whole.pack(contribution, divisor, self.rank, Format.AUTO)

    def run(self, own: list[HeldSegment]) -> Summed[Rows]:
        """From this rank's own segment to the complete rows of all parts."""
        self._agree(own[0])
        self._split(own[0])
        self._push()
        self._pull()
        return Summed([self.held[part][0] for part in range(self.size)], self)

    def _agree(self, own: HeldSegment) -> None:
        """Gather the index sets of all ranks, and choose the owners."""
        started = time.perf_counter()
        sets = {self.rank: self.sets.framed(0, self.rank, own.count, own.bitmap, own.keep, Format.AUTO)}
        for number, step in enumerate(self.announce.steps, 1):
            with within(PhaseKind.ANNOUNCE.value, number):
                self._announce(step, sets)
        if set(sets) != set(self.everyone):
            message = f"index sets came from ranks {', '.join(map(str, sorted(sets)))}, and not from all"
            raise SynchronisationError(Diagnostic("corrupt-message", message))
        bitmaps = [sets[rank].bitmap for rank in self.everyone]
        with within("agree"):
            self.agreed = Agreement(self.whole.kernels, self.holding, self.call.units, bitmaps, sets, self._wanted())
        self.courier = RowPacker(self.agreed, self.call, self.rank, self.whole.unit_bytes)
        self.stats[PhaseKind.ANNOUNCE].seconds += time.perf_counter() - started

    def _announce(self, step: RankStep, sets: dict[int, HeldSegment]) -> None:
        """One step of it; what comes goes to ``sets``."""
        posted = self.inbox.post(step)
        loads = [self._sets_of(sets, message) for message in step.sends]
        self.outbox.send(step, loads, Format.AUTO, self.stats[PhaseKind.ANNOUNCE])
        long = self.inbox.await_first(step, posted)
        self.outbox.send_rests(step)
        for segment in self.inbox.receive(step, long, self.stats[PhaseKind.ANNOUNCE]):
            sets[segment.origin] = segment
        self.outbox.finish(step)

    def _sets_of(self, sets: dict[int, HeldSegment], message: Message) -> list[HeldSegment]:
        """What a message of the announce carries: all sets that are here, or those that it names."""
        named = {piece.origin for piece in message.pieces}
        return [sets[rank] for rank in sorted(sets) if rank in named or -1 in named]

    def _wanted(self) -> torch.Tensor:
        """[size, size]: of which parts the slots of each rank matter here: of those that are summed here."""
        wanted = torch.zeros(self.size, self.size, dtype=torch.bool)
        wanted[:, list({part for _, _, part in self.cargo})] = True
        return wanted

    def _split(self, own: HeldSegment) -> None:
        rows = self.courier.framed_all(self.rank)
        self.agreed.split(own.bitmap, own.values, self.whole.unit_bytes, [each.values for each in rows])
        self.held = {each.part: [each] for each in rows}

    def _push(self) -> None:
        started = time.perf_counter()
        for number, step in enumerate(self.push.steps, 1):
            with within(PhaseKind.PUSH.value, number):
                posted = self._post(step, self._pushed)
                sending = self._send(step, self.stats[PhaseKind.PUSH])
                self.agreed.learn()
                arrived = self._receive(step, posted, self.stats[PhaseKind.PUSH])
            with within("merge"):
                self._join(arrived)
            self.link.wait_all(sending, step)
        for part, rows in self.held.items():
            if part not in self.push.needless:  # what the pull brings is left
                ordered = sorted(rows, key=lambda each: each.ranks)
                self.held[part] = [self._merged(ordered)] if len(ordered) > 1 else ordered
                self.complete += self.held[part]
        self.stats[PhaseKind.PUSH].seconds += time.perf_counter() - started

    def _pull(self) -> None:
        """All that comes stays to the end: once it sends, a rank is ready for every step, and nobody waits for that."""
        started, steps = time.perf_counter(), self.pull.steps
        posted = [self._post(step, self._pulled) for step in steps[:1]]
        for index, step in enumerate(steps):
            with within(PhaseKind.PULL.value, index + 1):
                sending = self._send(step, self.stats[PhaseKind.PULL])
                posted += [self._post(later, self._pulled) for later in steps[len(posted) :]]
                self._place()
                self._replace(self._receive(step, posted[index], self.stats[PhaseKind.PULL]))
                self.link.wait_all(sending, step)
        self.stats[PhaseKind.PULL].seconds += time.perf_counter() - started

    def _post(self, step: RankStep, pieces: Callable[[RankStep, Message], list[Piece]]) -> list[Posted]:
        posted: list[Posted] = []
        for message in step.receives:
            brings = pieces(step, message)
            buffer = torch.empty(self.courier.bytes_of(map(self.courier.count_of, brings)), dtype=torch.uint8)
            tag, receive = self.link.tag(step, 0), self.link.transport.receive
            posted.append((message.peer, brings, buffer, receive(message.peer, tag, buffer) if len(buffer) else None))
        return posted

    def _pushed(self, step: RankStep, message: Message) -> list[Piece]:
        """What a message of the push brings: merged, or under one-shot aggregation one piece a rank."""
        found: list[Piece] = []
        for part in sorted({piece.part for piece in message.pieces}):
            ranks = self.cargo[step.number, message.peer, part]
            found += [(part, (rank,)) for rank in ranks] if self.one_shot else [(part, ranks)]
        return found

    def _pulled(self, _: RankStep, message: Message) -> list[Piece]:
        return [(piece.part, self.everyone) for piece in message.pieces]

    def _send(self, step: RankStep, stats: PhaseStats) -> list[Sending]:
        sending, tag, send = [], self.link.tag(step, 0), self.link.transport.send
        for message in step.sends:
            rows = self._load(message)
            size = self.courier.bytes_of(each.count for each in rows)
            if size:
                sending.append((send(message.peer, tag, self.courier.message(rows)), message.peer, size))
                stats.sent(size)
                stats.values_sent(size - HEADER)
        return sending

    def _load(self, message: Message) -> list[Rows]:
        """What is held of a message's parts, by part and ranks; of one contributor, where a piece names one."""
        rows = [
            each
            for piece in message.pieces
            for each in self.held[piece.part]
            if piece.origin < 0 or each.ranks == (piece.origin,)
        ]
        return sorted(rows, key=lambda each: (each.part, each.ranks))

    def _receive(self, step: RankStep, posted: list[Posted], stats: PhaseStats) -> list[tuple[int, Rows]]:
        """(sender, rows) of what arrives; rows without values come without a message."""
        found: list[tuple[int, Rows]] = []
        for peer, pieces, buffer, pending in posted:
            if pending is not None:
                self.link.wait(pending, peer, step, buffer.numel())
                stats.received(buffer.numel())
                stats.values_received(buffer.numel() - HEADER)
            found += [(peer, rows) for rows in self.courier.opened(buffer, peer, pieces)]
        return found

    def _join(self, arrived: list[tuple[int, Rows]]) -> None:
        """The push: merge at once, in the order of the holders; or collect, under one-shot."""
        by_part: dict[int, list[tuple[int, Rows]]] = {}
        for sender, rows in arrived:
            by_part.setdefault(rows.part, []).append((sender, rows))
        for part, came in by_part.items():
            here = [(self.rank, rows) for rows in self.held[part]]
            ordered = [rows for _, rows in sorted([*here, *came], key=lambda each: each[0])]
            self.held[part] = ordered if self.one_shot else [self._merged(ordered)]

    def _merged(self, rows: Sequence[Rows]) -> Rows:
        """The sum of rows of one part, added in the order given."""
        part, agreed, whole = rows[0].part, self.agreed, self.whole
        ranks = tuple(sorted({rank for each in rows for rank in each.ranks}))
        occupied = [each for each in rows if each.count]
        if len(occupied) <= 1:
            return replace((occupied or rows)[0], ranks=ranks)
        made = self.courier.framed(part, ranks)
        bitmaps = [agreed.bitmap(part, each.ranks) for each in occupied]
        values = [each.values for each in occupied]
        words = words_of(agreed.slots[part])
        whole.kernels.merge(whole.dtype, bitmaps, values, words, whole.layout.width, made.values)
        return made

    def _replace(self, arrived: list[tuple[int, Rows]]) -> None:
        """The pull: what arrives is complete."""
        for _, rows in arrived:
            self.held[rows.part] = [rows]
            self.complete.append(rows)

    def _place(self) -> None:
        """Write what is complete to its place in the sum. A dense tensor is left alone until nothing can fail."""
        if self.whole.layout.is_sparse:
            if self.joined is None:
                self.joined = Joined(self.agreed, self.whole.layout, self.whole.unit_bytes)
            for rows in self.complete:
                self.joined.add(rows)
            self.complete.clear()

    def expand_into(self, complete: Sequence[Rows], tensor: torch.Tensor) -> None:
        """Write the complete rows of all parts to ``tensor``, dense and contiguous; absent units become +0."""
        self.agreed.join_dense([rows.values for rows in complete], self.whole.unit_bytes, tensor.data_ptr())

    def expand_units(self, complete: Sequence[Rows]) -> tuple[torch.Tensor, torch.Tensor]:
        """The complete rows of all parts as ascending unit ids [k] and values [k, width]."""
        self._place()
        assert self.joined
        return self.joined.ids, self.joined.values
