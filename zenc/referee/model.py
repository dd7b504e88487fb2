"""A plan of another program, as data: what every thread block of every GPU does, whatever file it came from.

    ForeignPlan = format name Goal in_place+ Block* Buffers     # ``in_place``: each way to place the output it is for
    Goal        = collective size whole root                    # ``whole``: chunks of the whole tensor
    Block       = gpu first last                                # steps [first, last) of the plan, in their order
    BlockStep   = place line? block after* takes* gives* until* ChunkMove*
    ChunkMove   = into: Cell* of: Cell* adds                    # one chunk
    Cell        = gpu buffer offset                             # i, o or s: the input, the output, the scratch
    Value       = (key any more)*                               # what a cell holds, by ``Goal``

A step begins when the step before it in its block has ended, all steps ``after`` have, a message is there on each
channel that it ``takes``, and each cell ``until`` has been written. Its moves then sum the cells ``of`` and, where one
``adds``, the chunk that came; the sum is written ``into`` cells, and sent on all channels that it ``gives``. Messages
of a channel come in the order in which they were sent. A step of several chunks has as many moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from zenc.errors import Diagnostic, Source, Span

Cell = tuple[int, str, int]
Channel = tuple[int | str, ...]
Value = tuple[tuple[int, int, int], ...]
"""The contributions in a cell: key of a chunk, GPUs as bits that contributed, those that did more than once."""

BUFFERS = {"i": "input", "o": "output", "s": "scratch"}
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")


@dataclass(frozen=True, slots=True)
class Goal:
    """The collective among ``size`` GPUs, on a tensor of ``whole`` chunks; GPU ``root`` broadcasts."""

    collective: str
    size: int
    whole: int
    root: int = 0

    @property
    def share(self) -> int:
        """Chunks of one GPU, where the tensor is cut among all."""
        return self.whole // self.size

    def chunks(self, buffer: str) -> int:
        """Return how many chunks the input or output of a GPU has."""
        cut = (buffer, self.collective) in (("i", "allgather"), ("o", "reducescatter"))
        return self.share if cut else self.whole

    def key(self, gpu: int, offset: int) -> int:
        """Return the chunk of the whole tensor at ``offset`` of the input of ``gpu``."""
        return gpu * self.share + offset if self.collective == "allgather" else offset

    def results(self, gpu: int) -> Iterator[tuple[int, int, int]]:
        """Yield offset, key and contributors of each chunk that the output of ``gpu`` must hold."""
        everyone, mine = (1 << self.size) - 1, gpu * self.share
        for offset in range(self.chunks("o")):
            from_gpu, within = divmod(offset, self.share or 1)
            if self.collective == "allreduce":
                yield offset, offset, everyone
            elif self.collective == "reducescatter":
                yield offset, mine + offset, everyone
            elif self.collective == "allgather":
                yield offset, offset, 1 << from_gpu
            elif self.collective == "alltoall":
                yield offset, mine + within, 1 << from_gpu
            else:
                yield offset, offset, 1 << self.root

    def placed(self, cell: Cell, in_place: bool) -> Cell:
        """Return the cell in memory: in place the input and the output of a GPU are one."""
        gpu, buffer, offset = cell
        if not in_place or buffer == "s":
            return cell
        if self.collective == "reducescatter":
            return (gpu, "i", offset + gpu * self.share) if buffer == "o" else cell
        return (gpu, "o", self.key(gpu, offset)) if buffer == "i" else cell


@dataclass(frozen=True, slots=True)
class ChunkMove:
    """The sum of the cells ``of``, and of the chunk that came where it ``adds``, written to the cells ``into``."""

    into: tuple[Cell, ...] = ()
    of: tuple[Cell, ...] = ()
    adds: bool = False


@dataclass(frozen=True, slots=True)
class BlockStep:
    """A step of a thread block, named as its file does by ``place``; ``after`` are numbers of steps of the plan."""

    place: str
    block: int
    moves: tuple[ChunkMove, ...] = ()
    after: tuple[int, ...] = ()
    takes: tuple[Channel, ...] = ()
    gives: tuple[Channel, ...] = ()
    until: tuple[Cell, ...] = ()
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block of ``gpu``: the steps [first, last) of the plan."""

    gpu: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ShareFlow:
    """A ``volume`` of a chunk that leaves its sender in ``epoch``; its receiver may send it on in epoch ``there``."""

    place: str
    line: int
    volume: Fraction
    sender: int
    receiver: int
    epoch: int
    there: int


@dataclass(frozen=True, slots=True)
class Demand:
    """A chunk that the GPU ``destination`` gets of ``source``, until the end of the epoch ``by``, and its flows."""

    place: str
    source: int
    destination: int
    by: int
    line: int
    flows: tuple[ShareFlow, ...]


@dataclass(frozen=True, slots=True)
class ForeignPlan:
    """A plan as it was read. ``place`` finds a line of its file; ``room`` are the chunks of each buffer of a GPU.

    ``names`` are those of GPUs in the file. Where blocks share chunks, offsets count slices, ``slices`` to a chunk.
    """

    source: Source = field(repr=False)
    place: Callable[[int | None], Span | None] = field(repr=False)
    format: str
    name: str
    goal: Goal
    in_place: tuple[bool, ...]
    blocks: tuple[Block, ...]
    steps: tuple[BlockStep, ...]
    room: dict[tuple[int, str], int]
    channel_text: str = "channel {2} from {0} to {1}"
    names: tuple[str, ...] = ()
    slices: int = 1
    warnings: tuple[Diagnostic, ...] = ()
    demands: tuple[Demand, ...] = ()

    @property
    def length(self) -> int:
        """Return how many steps there are, or flows."""
        return len(self.steps) or sum(len(demand.flows) for demand in self.demands)

    def gpu(self, gpu: int) -> str:
        """Return the name of a GPU in the file."""
        return self.names[gpu] if self.names else f"gpu {gpu}"

    def cell(self, cell: Cell) -> str:
        """Return a cell in words."""
        slice_ = f" (slice {cell[2] % self.slices})" if self.slices > 1 else ""
        return f"chunk {cell[2] // self.slices}{slice_} of the {BUFFERS[cell[1]]} of {self.gpu(cell[0])}"

    def channel(self, channel: Channel) -> str:
        """Return a channel in words."""
        ends = (self.gpu(int(end)) for end in channel[:2])
        return self.channel_text.format(*ends, *channel[2:])
