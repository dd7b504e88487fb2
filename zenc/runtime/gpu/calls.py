"""Calls of one rank over tensors in a GPU's memory, and their common parts: the arguments and results of C++.

GpuCall         = GpuContext  Layout  DevicePartition  Workspace     # reduce: tensor -> Reduction
GpuAnnounceCall = the same, of units alone                          # announce: ids -> GpuOwners
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch

from zenc.plan.ir import PhaseKind
from zenc.runtime.announced.announced_call import WrongAnnouncement
from zenc.runtime.backend_api import AgreedOwners, Reduction
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import Contribution, Layout, contribution_of, sparse_result
from zenc.runtime.call.ranges import is_watched, within
from zenc.runtime.call.stats import VALUES, PhaseStats
from zenc.runtime.cpu.channel import CallHeader
from zenc.runtime.gpu.call_args import ALLOCATE, CHOOSE, CallArgs, PhaseCount, failure_of
from zenc.runtime.gpu.capacity import RELEARNED, CapacityLearner, FixedCapacity, Greatest
from zenc.runtime.gpu.device import Arena, GpuDevice, LoadedKernels
from zenc.runtime.gpu.library import CallLibrary
from zenc.runtime.gpu.partition import DevicePartition
from zenc.runtime.gpu.sequence import ProgramTable
from zenc.runtime.lossy.gpu_contribution import GpuContribution
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.losses import CallLosses
from zenc.runtime.lossy.supports import takes_greatest
from zenc.scheme.compression import Selection
from zenc.scheme.model import Format
from zenc.wire.constants import DTYPE_NUMBERS, CallOutcome
from zenc.wire.formats import BY_BYTES, FormatCosts

Counts: TypeAlias = "ctypes.Array[ctypes.c_int64]"
Allocation: TypeAlias = Callable[[object, int], int]
"""(anything, bytes) -> the address of that much device memory, or 0 if no memory is left."""


@dataclass(frozen=True, slots=True)
class GpuContext:
    """The common parts of all calls; ``library`` owns the handle ``communicator``.

    ``complete``: the parts that a result has; half a program may have only some. ``kinds``: those of its phases.
    ``announces``: the plan is by holders.
    """

    scheme: str
    parts: int
    complete: int
    announces: bool
    kinds: tuple[PhaseKind, ...]
    library: CallLibrary
    program: ProgramTable | None
    kernels: LoadedKernels
    communicator: int
    gpu: GpuDevice
    nothing: torch.Tensor
    """A little memory of the GPU, whose address stands for an empty tensor."""
    deadline: float
    costs: FormatCosts = BY_BYTES
    capacity: FixedCapacity | None = None
    """None: exact mode, or learned."""
    greatest: Greatest | None = None
    """The function by which ranks learn capacities; None: they do not."""
    selections: tuple[tuple[Selection, ...], ...] = ()
    """The selections of sums: of each phase those of its merges, and those before the next phase."""
    compression: GpuCompression | None = None
    """Kernels of plans that select or encode."""


KEPT_BYTES = 1 << 26
"""Most device memory that a layout keeps between its calls: beyond it, asking again costs little."""


class ArgumentBlock:
    """Arguments and results in C++ of the calls of one layout, one call after another.

    Their common values are in ``args`` from the beginning. ``asked`` gives device memory to the call
    that is under way. ``counts_in``, ``counts_out``: occupied units of the parts, of the call that has ended.
    """

    def __init__(self, loaded: GpuContext, layout: Layout, cut: DevicePartition) -> None:
        self.args = call = CallArgs()
        self.asked: list[Allocation] = [_none_left]
        asked = self.asked
        self.counts_in, self.counts_out = (ctypes.c_int64 * loaded.parts)(), (ctypes.c_int64 * loaded.complete)()
        self.keep = loaded, cut
        call.allocate = ALLOCATE(lambda user, size: asked[0](user, size))
        call.units, call.width, call.dtype = layout.units, layout.width, DTYPE_NUMBERS[layout.dtype_name]
        cut.fill(call)
        call.program = None if loaded.program is None else loaded.program.handle
        call.kernels, call.communicator = loaded.kernels.handle, loaded.communicator
        call.deadline = int(loaded.deadline * 1e6)
        call.costs[:] = loaded.costs
        call.counts_in, call.counts_out = ctypes.addressof(self.counts_in), ctypes.addressof(self.counts_out)


def _none_left(_: object, size: int) -> int:
    return 0


class Workspace:
    """The memory that calls of one layout use, one after another, of the device and of the host, and their capacity."""

    def __init__(self, learner: CapacityLearner | None = None) -> None:
        self.learner = learner
        self.wanted = 0
        """Bytes that the last call needed, without its result."""
        self._kept: Arena | None = None
        self._address, self._bytes = 0, 0
        self.blocks: list[ArgumentBlock] = []
        """Argument blocks of calls that have ended well, free to be used again."""

    def lend(self, call: CallArgs, arena: Arena) -> None:
        """Give ``call`` its expected memory in one piece, so that it seldom asks for more, and all can be reused."""
        call.arena = arena.allocate(None, self.wanted) if self.wanted else 0
        call.arena_bytes = self.wanted if call.arena else 0

    def lend_kept(self, call: CallArgs, gpu: GpuDevice) -> None:
        """Give ``call``, which the GPU ends before the next begins, memory that the next one reuses if it is small."""
        if self.wanted > self._bytes or self._bytes > KEPT_BYTES:
            self._kept = Arena(gpu)
            self._address = self._kept.allocate(None, self.wanted)
            self._bytes = self.wanted if self._address else 0
        call.arena, call.arena_bytes = self._address, self._bytes

    def ended(self, call: CallArgs) -> None:
        """Learn from ``call``, which has ended well, and drop memory that is too large to keep."""
        self.wanted = call.arena_wanted
        if self._bytes > KEPT_BYTES:
            self._kept, self._address, self._bytes = None, 0, 0


class GpuCall:
    """A call of one rank over tensors in a GPU's memory; it has ended on the GPU too when ``reduce`` returns."""

    def __init__(
        self,
        loaded: GpuContext,
        layout: Layout,
        cut: DevicePartition,
        envelope: CallHeader,
        workspace: Workspace,
        losses: CallLosses | None = None,
        of_result: Layout | None = None,
        owners: GpuOwners | None = None,
    ) -> None:
        self.loaded, self.layout, self.cut, self.envelope = loaded, layout, cut, envelope
        self.workspace, self.losses, self.of_result = workspace, losses, of_result or layout
        self.owners = owners
        self._plain = losses is None and owners is None
        self.room = loaded.capacity if workspace.learner is None else workspace.learner.room
        self.had_no_room = False
        try:
            self.block = workspace.blocks.pop() if self._plain else ArgumentBlock(loaded, layout, cut)
        except IndexError:  # other calls have them all
            self.block = ArgumentBlock(loaded, layout, cut)
        self.call = self.block.args
        self._selects: SumSelection | None = None
        self._counted: PhasesCounted | None = None

    @property
    def stats(self) -> Mapping[str, PhaseStats]:
        """Statistics by phase, in order."""
        return PhasesCounted(self.call, self.loaded) if self._counted is None else self._counted

    def reduce(self, tensor: torch.Tensor, divisor: int, turn: Turn) -> Reduction:
        """Return the sum in the shape and layout of ``tensor``; a dense one is overwritten. ``turn`` is not passed on.

        The result of half a program is a sparse tensor of that shape.
        """
        call, arena, workspace = self.call, Arena(self.loaded.gpu), self.workspace
        target = None if self.of_result.sparse_dim else tensor if tensor.is_contiguous() else _without_gaps(tensor)
        workspace.lend_kept(call, self.loaded.gpu)
        contribution = contribution_of(tensor, self.layout)  # maybe a copy, which has to live as long as the call
        counts_in, counts_out = self._play(contribution, target, divisor, arena.allocate)
        workspace.ended(call)
        learner, made_again = workspace.learner, self.had_no_room or bool(call.made_again)
        if learner is not None and (made_again or not learner.is_sure or self.envelope.call % RELEARNED == 0):
            learner.ended(made_again, counts_in, counts_out, self.cut.part_slots)
        result = self.sparse(arena, call.count_out) if target is None else tensor
        if target is not None and target is not tensor:
            tensor.detach().copy_(target)
        found = Reduction(result, list(counts_in), list(counts_out), 0.0, 0.0, made_again)
        self._counted = PhasesCounted(call, self.loaded)
        if self._plain:
            workspace.blocks.append(self.block)
        return found

    def capture(self, staged: torch.Tensor, divisor: int, arena: Arena, report: torch.Tensor) -> int:
        """Put the call of ``staged``, dense, of any shape, which also gets the sum, in a graph; memory is of ``arena``.

        Return a handle of what replays it, or 0 where that can't be. ``report``: as for ``run``.
        """
        captured = []

        def capture(call: CallArgs) -> CallOutcome:
            captured.append(self.loaded.library.capture(call))
            return CallOutcome(call.outcome)

        self.workspace.lend(self.call, arena)
        if self.workspace.wanted and not self.call.arena:
            return 0
        self._play(contribution_of(staged, self.layout), staged, divisor, arena.allocate, report, capture)
        for phase in self.call.phases:
            phase.nanoseconds = 0
        return captured[0]

    def run(
        self,
        tensor: torch.Tensor,
        target: torch.Tensor | None,
        divisor: int,
        allocate: Allocation,
        report: torch.Tensor | None = None,
    ) -> tuple[Counts, Counts]:
        """Sum ``tensor`` into ``target``, or memory of ``allocate``; return counts of its parts, in and out.

        With a ``report``, pinned int64 [1 + 2 * parts], the call is only put on the stream, for a graph to capture.
        """
        self.call.arena, self.call.arena_bytes = None, 0  # the arguments may have been those of an ordinary call
        contribution = contribution_of(tensor, self.layout)  # maybe a copy, which has to live as long as the call
        return self._play(contribution, target, divisor, allocate, report)

    def _play(
        self,
        contribution: Contribution,
        target: torch.Tensor | None,
        divisor: int,
        allocate: Allocation,
        report: torch.Tensor | None = None,
        play: Callable[[CallArgs], CallOutcome] | None = None,
    ) -> tuple[Counts, Counts]:
        loaded, block, play = self.loaded, self.block, play or self.loaded.library.all_reduce
        self._fill(contribution, target, divisor)
        block.asked[0] = allocate
        self.call.report = None if report is None else report.data_ptr()
        if is_watched():
            with within("kernels and messages"):
                outcome = play(self.call)
        else:
            outcome = play(self.call)
        block.asked[0] = _none_left
        if outcome is not CallOutcome.DONE:
            selects = self._selects.failure if self._selects else None
            raise loaded.kernels.take_failure() or selects or failure_of(self.call, loaded.scheme)
        if self.owners is not None and self.call.made_again:
            raise WrongAnnouncement
        if self.losses is not None and self.cut.part_bytes is not None:
            self.losses.part_bytes = list(self.cut.part_bytes)
        if self.losses is not None and self.losses.averages and loaded.capacity is None:
            self.losses.finite, self.losses.averages = bool(self.call.finite), 0  # the caller averages
        return block.counts_in, block.counts_out

    def _fill(self, contribution: Contribution, target: torch.Tensor | None, divisor: int) -> None:
        """Fill in the summed tensor, the divisor and the places of results, as far as they differ between calls."""
        call, loaded, ids = self.call, self.loaded, contribution.unit_ids
        call.number, call.signature = self.envelope.call, self.envelope.signature
        call.own_share, call.sum_share = (0.0, 0.0) if self.room is None else (self.room.own, self.room.total)
        if ids is not None:  # an empty tensor has no address, and no address means a dense tensor
            call.ids, call.n = ids.data_ptr() or loaded.nothing.data_ptr(), ids.numel()
        call.values, call.divisor = contribution.values.data_ptr(), divisor
        call.dense_out = None if target is None else target.data_ptr()
        if self.losses is not None:
            self._fill_losses(self.losses)
        call.agreed = None if self.owners is None else self.owners.handle
        call.stream = loaded.gpu.stream()

    def _fill_losses(self, losses: CallLosses) -> None:
        call, loaded = self.call, self.loaded
        call.salt, call.residual = losses.salt, None if losses.residual is None else losses.residual.data_ptr()
        call.taken = None if losses.taken is None else losses.taken.data_ptr()
        call.before = None if losses.before is None else losses.before.data_ptr()
        call.residual_undefined = losses.undefined and losses.residual is not None
        call.finite = losses.averages != 0 and loaded.capacity is None
        if any(losses.chosen(each) for each in loaded.selections):
            assert loaded.compression is not None
            self._selects = SumSelection(loaded.compression, self.layout, loaded.selections, losses)
            call.choose, call.chooses_rows = self._selects.callback, self._selects.of_rows

    def sparse(self, arena: Arena, count: int) -> torch.Tensor:
        """Return the result of ``count`` units, values [count, width], that a call left in memory of ``arena``."""
        layout = self.of_result
        ids = arena.array(self.call.ids_out, (count,), torch.int64)
        values = arena.array(self.call.values_out, (count, layout.width), layout.dtype)
        return sparse_result(ids, values, layout)


class GpuOwners(AgreedOwners):
    """The owners of all units that any rank has announced, in memory of ``arena``, which ``handle`` points to."""

    def __init__(self, library: CallLibrary, handle: int, arena: Arena) -> None:
        self.handle, self._arena = handle, arena
        weakref.finalize(self, library.release_agreed, handle)


class GpuAnnounceCall(GpuCall):
    """The call of one rank that tells the others its future units, on a layout of rows without values."""

    def announce(self, units: torch.Tensor, turn: Turn) -> GpuOwners:
        """Return the owners, given the ``units`` [n] int64 of this rank, which may repeat."""
        arena = Arena(self.loaded.gpu)
        self.workspace.lend(self.call, arena)
        self._play(Contribution(units, units.new_empty(0)), None, 1, arena.allocate)
        self.workspace.ended(self.call)
        return GpuOwners(self.loaded.library, self.call.announced, arena)


def _without_gaps(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor.detach(), memory_format=torch.contiguous_format)


class PhasesCounted(Mapping[str, PhaseStats]):
    """The phases of ``call`` by name, with the counts at this time; made readable when somebody asks."""

    def __init__(self, call: CallArgs, loaded: GpuContext) -> None:
        self._copy, self._loaded = bytes(call.phases), loaded

    @cached_property
    def _read(self) -> dict[str, PhaseStats]:
        counts = CallArgs()
        ctypes.memmove(counts.phases, self._copy, len(self._copy))
        bare = self._loaded.announces  # what owners get and give has no index
        return {kind.value: _phase_stats(counts.phase(kind), bare) for kind in self._loaded.kinds}

    def __getitem__(self, name: str) -> PhaseStats:
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._loaded.kinds)


def _phase_stats(phase: PhaseCount, bare: bool) -> PhaseStats:
    """Return ``phase`` as the run time counts; ``bare`` values travel alone, and are dense to the sequence."""
    names = {Format.DENSE: VALUES} if bare else {}
    return PhaseStats(
        phase.bytes_sent,
        phase.bytes_received,
        phase.messages_sent,
        phase.messages_received,
        phase.nanoseconds / 1e9,
        {names.get(format, format): size for format, size in phase.sent().items()},
        {names.get(format, format): size for format, size in phase.received().items()},
    )


class SumSelection:
    """Selections of sums within one call: ``selections`` are those of a ``GpuContext``.

    C++ has a part's rows in the GPU's memory, and calls ``callback``. The kernels of contributions take the units;
    the others become +0, and are added to where losses are kept.
    """

    def __init__(
        self, kernels: GpuCompression, layout: Layout, selections: Sequence[tuple[Selection, ...]], losses: CallLosses
    ) -> None:
        self._kernels, self._layout, self._selections, self._losses = kernels, layout, selections, losses
        self.failure: Exception | None = None
        self.callback = CHOOSE(self._choose)
        self.of_rows = all(map(takes_greatest, selections))

    def _choose(self, _: object, place: int, slots: int, count: int, values: int, loss: int | None, key: int) -> int:
        try:
            self._chosen(self._selections[place], slots, count, values, loss or 0, key)
        except Exception as error:  # no exception crosses C++
            self.failure = error
            return 0
        return 1

    def _chosen(
        self, selection: tuple[Selection, ...], slots: int, count: int, values: int, loss: int, key: int
    ) -> None:
        chosen = self._losses.chosen(selection)
        if not chosen:
            return
        of_part = self._array(values, count, self._layout.dtype)
        left = self._kernels.memory(4 * of_part.numel()).view(torch.float32).view_as(of_part)
        work = GpuContribution(self._kernels, of_part, None, left, units=slots)
        work.contribute(None, chosen, self._losses.draw(slots, key))
        if loss:
            self._array(loss, count, torch.float32).add_(left)

    def _array(self, address: int, rows: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the array [rows, width] at ``address`` of the GPU's memory."""
        width = self._layout.width
        return self._kernels.gpu.view(address, rows * width * dtype.itemsize).view(dtype).view(rows, width)
