"""MSCCL's XML, of msccl-tools and for the runtimes of NCCL and RCCL -> plans.

What a file means is what RCCL's parser and kernel make of it (``src/misc/msccl/msccl_parser.cc``,
``src/device/msccl_kernel_impl.h``): a step that waits (``depid``, ``deps``) goes on when a block has ended that step or
a later one that signals (``hasdep``); a ``nop`` is no step of its own, and hands its waits to the next.
"""

from __future__ import annotations

from dataclasses import replace

from zenc.errors import Diagnostic, Source
from zenc.referee.model import BlockStep, Cell, ForeignPlan
from zenc.referee.reading import MOST_GPUS, MOST_STEPS, PlanBuilder, copies
from zenc.topology.importers.xml import Element, parse_xml

MOST_BLOCKS = 1024
MOST_COUNT = 4096
"""Most chunks of a step; RCCL takes 71."""
RECEIVE, SEND, READ, WRITE, REDUCE = 1, 2, 4, 8, 16
STEPS = {
    "s": SEND | READ,
    "r": RECEIVE | WRITE,
    "rcs": RECEIVE | WRITE | SEND,
    "rrs": RECEIVE | READ | SEND,
    "rrc": RECEIVE | READ | WRITE,
    "rrcs": RECEIVE | READ | WRITE | SEND,
    "cpy": READ | WRITE,
    "re": READ | WRITE | REDUCE,
    "nop": 0,
}
"""Types of steps, with the parts of each."""


def read(data: bytes, source: Source) -> ForeignPlan:
    """Return the plan in ``data``; raises PlanError."""
    return _XmlReader(source).plan(parse_xml(data, source, MOST_STEPS + 100_000, "plan"))


class _XmlReader(PlanBuilder):
    def plan(self, root: Element) -> ForeignPlan:
        size = self.number(root, "ngpus", 1, MOST_GPUS)
        goal = self.goal(root.attributes.get("coll"), size, self.number(root, "nchunksperloop", 1), root.line)
        inside = self.number(root, "inplace", 0, 1, 0)
        outside = self.number(root, "outofplace", 0, 1, 1 - inside)
        modes = tuple(mode for mode, given in ((True, inside), (False, outside)) if given)
        if not modes:
            self._malformed("it is for calls neither in place nor out of place", root.line)
        gpus = [element for element in root.children if element.tag == "gpu"]
        self.ensure_gpus((self.number(gpu, "id", 0, size - 1) for gpu in gpus), size)
        self.room: dict[tuple[int, str], int] = {}
        self.numbers: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        self.waits: dict[int, list[tuple[int, int, Element]]] = {}
        self.senders: dict[tuple[int, ...], int] = {}
        self.warnings: list[Diagnostic] = []
        for gpu in gpus:
            self._gpu(gpu, self.number(gpu, "id"), size)
        steps = tuple(self._waiting(index, step) for index, step in enumerate(self.steps))
        of = (
            self.source,
            self.place,
            "MSCCL XML",
            root.attributes.get("name", "")[:80],
            goal,
            modes,
            tuple(self.blocks),
            steps,
        )
        return ForeignPlan(*of, self.room, warnings=tuple(self.warnings))

    def _gpu(self, element: Element, gpu: int, size: int) -> None:
        for buffer in "ios":
            self.room[gpu, buffer] = self.number(element, f"{buffer}_chunks")
        for block in element.children:
            if block.tag != "tb":
                continue
            id = self.number(block, "id", 0, MOST_BLOCKS)
            if (gpu, id) in self.numbers:
                self._malformed(f"gpu {gpu} has threadblock {id} twice", block.line)
            self._block(block, gpu, id, size)

    def _block(self, element: Element, gpu: int, id: int, size: int) -> None:
        first, numbers = len(self.steps), self.numbers.setdefault((gpu, id), [])
        peers = {way: self.number(element, way, -1, size - 1) for way in ("send", "recv")}
        channel, waits = self.number(element, "chan", -1, MOST_BLOCKS), list[tuple[int, int, Element]]()
        for child in element.children:
            if child.tag != "step":
                self._malformed(f"<{child.tag[:40]}> stands where a step should", child.line)
            at, place = len(numbers), f"gpu {gpu}, threadblock {id}, step {len(numbers)}"
            if self.number(child, "s") != at:
                self._malformed(
                    f"step {child.attributes['s']} of threadblock {id} of gpu {gpu} stands where step {at} should",
                    child.line,
                )
            type = child.attributes.get("type", "")
            if type not in STEPS:
                self._malformed(f"{place} is of type '{type[:40]}'; one of {', '.join(STEPS)}", child.line)
            block, step = self.number(child, "depid", -1, MOST_BLOCKS), self.number(child, "deps", -1)
            if block >= 0:
                waits.append((block, step, child))
            numbers.append((len(self.steps), type != "nop" and self.number(child, "hasdep", 0, 1) == 1))
            if type == "nop":
                continue
            if waits and block < 0:
                said = f"{place} waits by nops before it only, and RCCL takes these before steps that wait themselves"
                self.warnings.append(Diagnostic("runtime-refuses", said, self.place(child.line), severity="warning"))
            index = self.add(self._step(child, STEPS[type], place, (gpu, id), (peers["send"], peers["recv"], channel)))
            self.waits[index], waits = waits, []
        self.close(gpu, first)

    def _step(
        self, element: Element, does: int, place: str, of: tuple[int, int], link: tuple[int, int, int]
    ) -> BlockStep:
        gpu, (send, receive, channel) = of[0], link
        number = self.reserve(self.number(element, "cnt", 1, MOST_COUNT), element.line)
        from_, to = (
            self._cell(element, gpu, way) if does & flag else None for way, flag in (("src", READ), ("dst", WRITE))
        )
        read = tuple(cell for cell in (to if does & REDUCE else None, from_) if cell)
        takes = (self._channel(element, "recv", place, of, (receive, gpu, channel)),) if does & RECEIVE else ()
        gives = (self._channel(element, "send", place, of, (gpu, send, channel)),) if does & SEND else ()
        moves = copies(to, read, number, bool(does & RECEIVE))
        return BlockStep(place, len(self.blocks), moves, (), takes, gives, line=element.line)

    def _cell(self, element: Element, gpu: int, way: str) -> Cell:
        buffer = element.attributes.get(f"{way}buf", "")
        if buffer not in ("i", "o", "s"):
            self._malformed(f"'{way}buf' is '{buffer[:40]}'; one of i, o, s", element.line)
        return gpu, buffer, self.number(element, f"{way}off", -1)

    def _channel(
        self, element: Element, way: str, place: str, of: tuple[int, int], channel: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        """Return the connection of a step, which belongs to one block at each end."""
        if -1 in channel[:2]:
            self._malformed(f"{place} has no peer: '{way}' of its threadblock is -1", element.line)
        if channel[0] == channel[1]:
            self._malformed(f"{place} has its own gpu as its peer", element.line)
        other = self.senders.setdefault((way == "send", *channel), of[1])
        if other != of[1]:
            said = f"threadblocks {other} and {of[1]} of gpu {of[0]} both {'send' if way == 'send' else 'receive'}"
            said += f" on channel {channel[2]} from gpu {channel[0]} to gpu {channel[1]}"
            self._fail("shared-channel", said, element.line)
        return channel

    def _waiting(self, index: int, step: BlockStep) -> BlockStep:
        gpu = self.blocks[step.block].gpu
        return replace(step, after=tuple(self._signal(step, gpu, *wait) for wait in self.waits.pop(index)))

    def _signal(self, step: BlockStep, gpu: int, block: int, at: int, element: Element) -> int:
        numbers = self.numbers.get((gpu, block), [])
        if not 0 <= at < len(numbers):
            self._malformed(
                f"{step.place} waits for step {at} of threadblock {block}, which gpu {gpu} does not have", element.line
            )
        found = next((index for index, signals in numbers[at:] if signals), None)
        if found is None:
            said = f"{step.place} waits for step {at} of threadblock {block}: it has hasdep=0, and so have all after it"
            self._fail("deadlock", said, element.line)
        return found
