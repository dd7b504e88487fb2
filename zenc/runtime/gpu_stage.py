"""A plan on a GPU: the generated call sequence of this rank, its kernels, and NCCL between the ranks.

Stage = CallSequence of this rank, kernels in the GPU's context, communicator
prepare(layout) -> open(envelope) -> GpuCall
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TypeAlias

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.sequence_code import lowered, render_sequences
from zenc.errors import SynchronisationError
from zenc.runtime.communicator import Communicator, in_a_line
from zenc.runtime.gpu import Arena, Gpu
from zenc.runtime.layout import Contribution, Layout, contribution_of, sparse_result
from zenc.runtime.reduction import Opener, Reduction, Stage
from zenc.runtime.stats import VALUES, PhaseStats
from zenc.runtime.wire import Envelope
from zenc.runtime.work import Work
from zenc.scheme.model import Format
from zenc.targets.cuda import sequence as targets
from zenc.targets.cuda.call import ALLOCATE, DTYPE_NUMBERS, Call, Outcome, PhaseCount, failure_of
from zenc.targets.cuda.tables import Cut, Cuts

Counts: TypeAlias = "ctypes.Array[ctypes.c_int64]"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What all calls of a stage share. ``library`` owns the handles ``kernels`` and ``communicator``."""

    scheme: str
    parts: int
    announces: bool
    library: targets.CallSequence
    kernels: int
    communicator: int
    gpu: Gpu
    nothing: torch.Tensor
    """Some memory of the GPU."""
    deadline: float


def gpu_stage(artifact: Artifact, gpu: Gpu, group: Communicator, deadline: float) -> Stage:
    """Make the plan of ``artifact`` ready on ``gpu``; all ranks of ``group`` do so together.

    Raises VerificationError, BuildError, TargetError, and SynchronisationError ``group-not-made``.
    """
    plan, parts = artifact.plan, artifact.plan.parts(group.size)
    try:
        steps = lowered(plan, group.size, group.rank)
        library = targets.load(render_sequences([steps]), deadline_s=deadline)
        library.bind(*gpu.libraries(group.size))
        kernels = library.load_kernels(gpu.image(artifact))
        name = library.unique_id() if group.size > 1 and group.rank == 0 else b""
    except Exception as error:
        _share(group, b"", in_a_line(error), deadline)
        raise
    name = _share(group, name, "", deadline)
    communicator = library.open_communicator(name, group.size, group.rank, deadline)
    loaded = Loaded(
        plan.scheme, parts, bool(plan.announce), library, kernels, communicator, gpu, gpu.memory(8), deadline
    )

    cuts = Cuts(plan.mapping, parts, library, gpu.uploaded)

    def prepare(layout: Layout) -> Opener:
        cut = cuts.of(layout.units)
        return lambda envelope: GpuCall(loaded, layout, cut, envelope)

    return prepare


def _share(group: Communicator, name: bytes, error: str, deadline: float) -> bytes:
    """The name that rank 0 gives the ranks' NCCL group. In turn with the calls of the group; raises no other error.

    A rank that fails takes part, so that the others learn of it at once, and then raises its own error.
    """
    found: list[bytes] = []

    def shared(_: Work) -> torch.Tensor:
        found.append(group.share(name, error, deadline))
        return torch.empty(0)

    try:
        group.worker.run(shared)
    except SynchronisationError:
        if not error:
            raise
    return found[0] if found else b""


class GpuCall:
    """One call of one rank over tensors in a GPU's memory. It has ended on the GPU too when ``reduce`` returns."""

    def __init__(self, loaded: Loaded, layout: Layout, cut: Cut, envelope: Envelope) -> None:
        self.loaded, self.layout, self.cut, self.envelope = loaded, layout, cut, envelope
        self.call = Call()

    @property
    def stats(self) -> dict[str, PhaseStats]:
        """By phase, in order."""
        push, pull, announce = self.call.phases
        bare = self.loaded.announces  # what owners get and give has no index
        phases = {"push": _phase_stats(push, bare), "pull": _phase_stats(pull, bare)}
        return {"announce": _phase_stats(announce), **phases} if bare else phases

    def reduce(self, tensor: torch.Tensor, divisor: int) -> Reduction:
        """The sum in the layout of ``tensor``; a dense one is overwritten."""
        layout, loaded, arena = self.layout, self.loaded, Arena(self.loaded.gpu)
        contribution = contribution_of(tensor, layout)
        target = None if layout.is_sparse else _target(tensor)
        counts_in, counts_out = (ctypes.c_int64 * loaded.parts)(), (ctypes.c_int64 * loaded.parts)()
        allocate = ALLOCATE(arena.allocate)
        self._fill(contribution, target, divisor, counts_in, counts_out)
        self.call.allocate = allocate
        if loaded.library.all_reduce(self.call) is not Outcome.DONE:
            raise failure_of(self.call, loaded.scheme)
        result = self._sparse(arena) if target is None else _into(tensor, target)
        return Reduction(result, list(counts_in), list(counts_out), 0.0, 0.0)

    def _fill(
        self,
        contribution: Contribution,
        target: torch.Tensor | None,
        divisor: int,
        counts_in: Counts,
        counts_out: Counts,
    ) -> None:
        """Say what to sum, with what, and where the results go."""
        call, layout, loaded = self.call, self.layout, self.loaded
        ids = contribution.unit_ids
        call.number, call.signature = self.envelope.call, self.envelope.signature
        call.units, call.width, call.dtype = layout.units, layout.width, DTYPE_NUMBERS[layout.dtype_name]
        self.cut.fill(call)
        if ids is not None:  # an empty tensor has no address, and no address means a dense tensor
            call.ids, call.n = ids.data_ptr() or loaded.nothing.data_ptr(), ids.numel()
        call.values, call.divisor = contribution.values.data_ptr(), divisor
        call.dense_out = None if target is None else target.data_ptr()
        call.kernels, call.communicator = loaded.kernels, loaded.communicator
        call.stream, call.side = loaded.gpu.streams()
        call.deadline = int(loaded.deadline * 1e6)
        call.counts_in, call.counts_out = ctypes.addressof(counts_in), ctypes.addressof(counts_out)

    def _sparse(self, arena: Arena) -> torch.Tensor:
        layout, count = self.layout, self.call.count_out
        ids = arena.array(self.call.ids_out, (count,), torch.int64)
        values = arena.array(self.call.values_out, (count, layout.width), layout.dtype)
        return sparse_result(ids, values, layout)


def _target(tensor: torch.Tensor) -> torch.Tensor:
    """Where a dense sum is written: the tensor itself, unless it has gaps."""
    plain = tensor.detach()
    return plain if plain.is_contiguous() else torch.empty_like(plain, memory_format=torch.contiguous_format)


def _into(tensor: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(target)
    return tensor


def _phase_stats(phase: PhaseCount, bare: bool = False) -> PhaseStats:
    """``phase`` as the run time counts; ``bare`` values travel alone, and are dense to the sequence."""
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
