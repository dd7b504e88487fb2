"""The judge of a plan of another program: plays it with sets of contributors in place of numbers.

``schedule`` runs all thread blocks as far as they come: what a plan waits for never depends on values, so any order of
steps that is possible leads to the same end. ``judge`` then follows one such order. Two steps of different blocks that
touch one cell, one of them to write, must be ordered by the program itself: by waits and messages, not by luck. Where
all are, every run of the plan leaves the values of this one, and they are compared with what the collective asks for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zenc.common.wording import count
from zenc.errors import Diagnostic
from zenc.referee.model import BUFFERS, BlockStep, Cell, Channel, ForeignPlan, Value

MOST_FOUND = 10
"""Most findings of one kind that are told; the last says how many more there are."""
SLOTS = 2
"""Messages that a connection has room for at least: NCCL's simple protocol has two of the greatest length in flight."""
Wait = tuple[str, object]
Stuck = dict[int, tuple[int, Wait]]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A chunk's ``value`` on its way from one GPU to another, in the order of the run."""

    sender: int
    receiver: int
    value: Value


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of the judge about one way to place the output, and the messages between GPUs."""

    found: tuple[Diagnostic, ...]
    transfers: tuple[Transfer, ...]

    @property
    def proved(self) -> bool:
        """Return whether nothing is wrong."""
        return all(one.severity == "warning" for one in self.found)


def judge(plan: ForeignPlan, in_place: bool) -> Verdict:
    """Return the mistakes of ``plan``, with the output of each GPU in place of its input or elsewhere."""
    found = [*_out_of_range(plan)]
    if found:
        return Verdict(tuple(cut(found)), ())
    order, stuck, left = schedule(plan)
    if stuck:
        return Verdict((_deadlock(plan, stuck),), ())
    found = [_unreceived(plan, channel, left[channel]) for channel in _owed(plan) if left.get(channel)]
    player = _Player(plan, in_place)
    for index in order:
        player.play(index)
    found += [*cut(player.unmatched), *cut(player.races), *cut(player.unwritten)]
    found += [] if player.races or player.unwritten or player.unmatched else cut([*_wrong(player)])
    tight = {} if found else schedule(plan, SLOTS)[1]
    found += [_needs_room(plan, tight)] if tight else []
    return Verdict(tuple(found), tuple(player.transfers))


def schedule(plan: ForeignPlan, slots: int | None = None) -> tuple[list[int], Stuck, dict[Channel, int]]:
    """Return the steps in an order in which they can run, what stops blocks that never end, and messages left over.

    A block that is stopped is told by the step and what it waits for: a step, a channel, a cell, or room in a channel,
    where each has ``slots`` for messages.
    """
    clock = _Clock(plan, slots)
    while clock.ready:
        clock.advance(clock.ready.popleft())
    return clock.order, clock.stuck, dict(clock.there)


class _Clock:
    """The control of a run, without values: how far each block has come, and what it waits for."""

    def __init__(self, plan: ForeignPlan, slots: int | None) -> None:
        self.plan, self.slots, self.order = plan, slots, list[int]()
        self.done = bytearray(len(plan.steps))
        self.waiting: dict[Wait, list[int]] = defaultdict(list)
        self.there: dict[Channel, int] = defaultdict(int)
        self.packets, self.written = {cell for step in plan.steps for cell in step.until}, set[Cell]()
        self.at = [block.first for block in plan.blocks]
        self.stuck: Stuck = {}
        self.ready = deque(range(len(plan.blocks)))

    def advance(self, block: int) -> None:
        """Run ``block`` until it ends or waits."""
        self.stuck.pop(block, None)
        for index in range(self.at[block], self.plan.blocks[block].last):
            wait = self._missing(self.plan.steps[index])
            if wait is not None:
                self.waiting[wait].append(block)
                self.stuck[block] = index, wait
                return
            self.at[block] = index + 1
            self._run(index, self.plan.steps[index])

    def _missing(self, step: BlockStep) -> Wait | None:
        for other in step.after:
            if not self.done[other]:
                return "step", other
        for channel in step.takes:
            if not self.there[channel]:
                return "take", channel
        for cell in step.until:
            if cell not in self.written:
                return "cell", cell
        for channel in step.gives if self.slots and step.moves else ():
            if self.there[channel] >= (self.slots or 0):
                return "room", channel
        return None

    def _run(self, index: int, step: BlockStep) -> None:
        self.order.append(index)
        self.done[index] = 1
        self._wake(("step", index))
        for channel in step.takes:
            self.there[channel] -= 1
            self._wake(("room", channel))
        for channel in step.gives:
            self.there[channel] += 1
            self._wake(("take", channel))
        for cell in {cell for move in step.moves for cell in move.into} & self.packets if self.packets else ():
            self.written.add(cell)
            self._wake(("cell", cell))

    def _wake(self, wait: Wait) -> None:
        self.ready.extend(self.waiting.pop(wait, ()))


def added(one: Value, other: Value) -> Value:
    """Return the sum of two values: who contributed to which chunk, and who more than once."""
    if len(one) == len(other) == 1 and one[0][0] == other[0][0]:
        (key, some, more), (_, others, others_more) = one[0], other[0]
        return ((key, some | others, more | others_more | (some & others)),)
    joined = {key: (some, more) for key, some, more in one}
    for key, some, more in other:
        mine, mine_more = joined.get(key, (0, 0))
        joined[key] = mine | some, mine_more | more | (mine & some)
    return tuple((key, *joined[key]) for key in sorted(joined))


@dataclass(slots=True)
class _InFlight:
    index: int
    ancestors: int
    values: list[Value | None]


class _Player:
    """Follows an order of steps: the value of each cell, and for each step the bits of all that come before it.

    Bit g stands for the start of GPU g, the next ones for steps in the order of the run. Only blocks, messages and
    steps that others wait for keep their ancestors, so memory is that of steps in flight.
    """

    def __init__(self, plan: ForeignPlan, in_place: bool) -> None:
        goal = plan.goal
        self.plan, self.in_place, self.played = plan, in_place, [-1] * goal.size
        cells = {(gpu, "i", at): goal.key(gpu, at) for gpu in range(goal.size) for at in range(goal.chunks("i"))}
        self.values: dict[Cell, Value] = {self.placed(cell): ((key, 1 << cell[0], 0),) for cell, key in cells.items()}
        self.writer: dict[Cell, int] = {cell: cell[0] for cell in self.values}
        self.readers: dict[Cell, dict[int, int]] = defaultdict(dict)
        self.ahead = [1 << block.gpu for block in plan.blocks]
        self.awaited = {other for step in plan.steps for other in step.after}
        self.kept: dict[int, int] = {}
        self.packets: dict[Cell, int] = {cell: 0 for step in plan.steps for cell in step.until}
        self.channels: dict[Channel, deque[_InFlight]] = defaultdict(deque)
        self.transfers: list[Transfer] = []
        self.races: list[Diagnostic] = []
        self.unwritten: list[Diagnostic] = []
        self.unmatched: list[Diagnostic] = []

    def placed(self, cell: Cell) -> Cell:
        return self.plan.goal.placed(cell, self.in_place)

    def play(self, index: int) -> None:
        step = self.plan.steps[index]
        came = [self.channels[channel].popleft() for channel in step.takes]
        ancestors = self.ahead[step.block] | (1 << len(self.played))
        for other in step.after:
            ancestors |= self.kept[other]
        for message in came:
            ancestors |= message.ancestors
        for cell in step.until:
            ancestors |= self.packets[cell]
        bearing = next((message for message in came if message.values), None)
        sent = self._moved(index, step, ancestors, self._arrived(step, bearing))
        self.played.append(index)
        self.ahead[step.block] = ancestors
        if index in self.awaited:
            self.kept[index] = ancestors
        for channel in step.gives:
            self.channels[channel].append(_InFlight(index, ancestors, sent))

    def _arrived(self, step: BlockStep, message: _InFlight | None) -> list[Value | None]:
        """Return a value for each move: of the message, where it has as many chunks as the step takes."""
        wanted = sum(move.adds for move in step.moves)
        values = message.values if message else []
        if len(values) != wanted:
            sent = f", and {self.plan.steps[message.index].place} sends {len(values)}" if message else ""
            self.unmatched.append(self._at("unmatched-message", step, f"it receives {count(wanted, 'chunk')}{sent}"))
        return [*values, *[None] * wanted][:wanted]

    def _moved(self, index: int, step: BlockStep, ancestors: int, arrived: list[Value | None]) -> list[Value | None]:
        sent: list[Value | None] = []
        gpu, coming = self.plan.blocks[step.block].gpu, iter(arrived)
        for move in step.moves:
            value: Value | None = next(coming) if move.adds else ()
            if move.adds and value:
                self.transfers.append(Transfer(int(step.takes[0][0]), gpu, value))
            for cell in move.of:
                read = self._read(step, cell, ancestors)
                if cell[0] != gpu and read:
                    self.transfers.append(Transfer(cell[0], gpu, read))
                value = None if value is None or read is None else added(value, read) if value else read
            for cell in move.into:
                if cell[0] != gpu and value:
                    self.transfers.append(Transfer(gpu, cell[0], value))
                self._write(step, cell, value, ancestors)
            sent.append(value)
        return sent

    def _read(self, step: BlockStep, cell: Cell, ancestors: int) -> Value | None:
        placed = self.placed(cell)
        writer, value = self.writer.get(placed), self.values.get(placed)
        if writer is None:
            said = f"it reads {self.plan.cell(cell)}, in which nothing has been written"
            self.unwritten.append(self._at("unwritten-read", step, said))
        elif not ancestors >> writer & 1:
            self._race(step, "reads", cell, "writes", writer)
        self.readers[placed][step.block] = len(self.played)
        return value

    def _write(self, step: BlockStep, cell: Cell, value: Value | None, ancestors: int) -> None:
        placed = self.placed(cell)
        writer = self.writer.get(placed)
        if writer is not None and not ancestors >> writer & 1:
            self._race(step, "writes", cell, "writes", writer)
        for reader in self.readers.pop(placed, {}).values():
            if not ancestors >> reader & 1:
                self._race(step, "writes", cell, "reads", reader)
        self.writer[placed] = len(self.played)
        if value is None:
            self.values.pop(placed, None)
        else:
            self.values[placed] = value
        if cell in self.packets:
            self.packets[cell] |= ancestors

    def _race(self, step: BlockStep, does: str, cell: Cell, other_does: str, other: int) -> None:
        if other < self.plan.goal.size:
            said = f"it {does} {self.plan.cell(cell)}, and {self.plan.gpu(other)} may not have begun"
        else:
            place = self.plan.steps[self.played[other]].place
            said = f"it {does} {self.plan.cell(cell)}, which {place} {other_does}, and neither waits for the other"
        self.races.append(self._at("data-race", step, said))

    def _at(self, id: str, step: BlockStep, said: str) -> Diagnostic:
        return Diagnostic(id, f"{step.place}: {said}", self.plan.place(step.line))


def cut(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return the first of ``found``; the last says how many more there are."""
    if len(found) <= MOST_FOUND:
        return list(found)
    last = found[MOST_FOUND - 1]
    more = f"and {len(found) - MOST_FOUND:,} more like this"
    return [*found[: MOST_FOUND - 1], Diagnostic(last.id, last.message, last.span, (more,))]


def _out_of_range(plan: ForeignPlan) -> Iterator[Diagnostic]:
    for step in plan.steps:
        cells = {cell for move in step.moves for cell in (*move.into, *move.of)}
        for cell in sorted(cells):
            gpu, buffer, offset = cell
            most = plan.room.get((gpu, buffer), 0)
            most = min(most, plan.goal.chunks(buffer)) if buffer != "s" else most
            if not 0 <= offset < most:
                of = f"the {BUFFERS[buffer]} of {plan.gpu(gpu)}, which has {most // plan.slices}"
                said = f"there is no chunk {offset // plan.slices} in {of}"
                yield Diagnostic("buffer-range", f"{step.place}: {said}", plan.place(step.line))
                break


def _wrong(player: _Player) -> Iterator[Diagnostic]:
    goal = player.plan.goal
    for gpu in range(goal.size):
        for offset, key, everyone in goal.results(gpu):
            value = player.values.get(player.placed((gpu, "o", offset)))
            if value != ((key, everyone, 0),):
                said = _wrong_text(player.plan, value, key, everyone)
                yield Diagnostic("wrong-result", f"{player.plan.cell((gpu, 'o', offset))} ends {said}")


def _wrong_text(plan: ForeignPlan, value: Value | None, key: int, everyone: int) -> str:
    if not value:
        return "without anything written in it"
    others = [other for other, _, _ in value if other != key]
    some, more = next(((some, more) for other, some, more in value if other == key), (0, 0))
    said = [
        *([f"without that of {gpus_text(plan, everyone & ~some)}"] if everyone & ~some else ()),
        *([f"with that of {gpus_text(plan, more)} more than once"] if more else ()),
        *([f"with that of {gpus_text(plan, some & ~everyone)} besides"] if some & ~everyone else ()),
        *([f"with that to chunk {others[0] // plan.slices} besides"] if others else ()),
    ]
    key //= plan.slices
    return f"without a contribution to chunk {key}" if not some else ", ".join(said)


def gpus_text(plan: ForeignPlan, mask: int) -> str:
    """Return the GPUs of ``mask`` in words."""
    return ", ".join(plan.gpu(gpu) for gpu in range(plan.goal.size) if mask >> gpu & 1)


def _owed(plan: ForeignPlan) -> list[Channel]:
    """Return the channels between GPUs whose messages must all be taken: a signal to nobody harms nobody."""
    given = dict.fromkeys(channel for step in plan.steps for channel in step.gives if channel[0] != channel[1])
    heard = {channel for step in plan.steps for channel in step.takes}
    heard |= {channel for step in plan.steps if step.moves for channel in step.gives}
    return [channel for channel in given if channel in heard]


def _unreceived(plan: ForeignPlan, channel: Channel, number: int) -> Diagnostic:
    giver = [step for step in plan.steps if channel in step.gives][-1]
    said = f"{count(number, 'message')} on {plan.channel(channel)}: never received"
    return Diagnostic("unmatched-message", f"{giver.place}: {said}", plan.place(giver.line))


def _needs_room(plan: ForeignPlan, stuck: Stuck) -> Diagnostic:
    found = _deadlock(plan, stuck)
    message = f"it ends only where connections have room for more than {SLOTS} messages: {found.message}"
    help = f"LL has room for 8, and the simple protocol for {SLOTS} where chunks are great"
    return Diagnostic("needs-room", message, found.span, found.notes, help, "warning")


def _deadlock(plan: ForeignPlan, stuck: Stuck) -> Diagnostic:
    """Return the error of blocks that wait for ever: the chain of waits from the first, until it ends or closes."""
    chain, block = list[int](), next(iter(sorted(stuck)))
    while block >= 0 and block not in chain:
        chain.append(block)
        block = _waited_for(plan, stuck, stuck[block][1])
    cycle = chain[chain.index(block) :] if block >= 0 else chain[-1:]
    said = [f"{plan.steps[stuck[one][0]].place} {_wait_text(plan, stuck, stuck[one][1])}" for one in cycle]
    closed = "they wait for each other" if len(cycle) > 1 else ""
    first = plan.steps[stuck[cycle[0]][0]]
    rest = len(stuck) - len(cycle)
    others = [f"{rest} other thread blocks wait, too"] if rest else []
    notes = (*said[1:MOST_FOUND], *([closed] if closed else ()), *others)
    return Diagnostic("deadlock", f"{said[0]}, for ever", plan.place(first.line), notes)


def _waited_for(plan: ForeignPlan, stuck: Stuck, wait: Wait) -> int:
    kind, of = wait
    if isinstance(of, int):
        return plan.steps[of].block
    for block, (at, _) in stuck.items():
        for step in plan.steps[at : plan.blocks[block].last]:
            if of in (step.takes if kind == "room" else step.gives) or any(of in move.into for move in step.moves):
                return block
    return -1


def _wait_text(plan: ForeignPlan, stuck: Stuck, wait: Wait) -> str:
    kind, of = wait
    if isinstance(of, int):
        return f"waits for {plan.steps[of].place}"
    assert isinstance(of, tuple)
    if kind == "cell":
        return f"waits for a packet in {plan.cell(of)}, which nothing writes before"
    nobody = "" if _waited_for(plan, stuck, wait) >= 0 else ", to which nothing more is sent"
    return f"waits for {'room' if kind == 'room' else 'a message'} on {plan.channel(of)}{nobody}"
