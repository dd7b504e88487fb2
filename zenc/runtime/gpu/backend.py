"""GPU backend: the call sequence of this rank, its kernels, and NCCL between the ranks, made ready for calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from zenc.codegen.artifact import Artifact
from zenc.common.log import notice
from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.plan.ir import VALUE_KINDS, PhaseKind
from zenc.rank_ir.announced import announce_of, announced_of
from zenc.rank_ir.halves import lower_part
from zenc.rank_ir.lower import lower
from zenc.runtime.announced.announced_call import AnnouncedCall
from zenc.runtime.backend_api import AgreedOwners, Part, is_proved
from zenc.runtime.call.layout import Layout, in_units
from zenc.runtime.cpu.channel import CallHeader
from zenc.runtime.gpu.calls import GpuAnnounceCall, GpuCall, GpuContext, GpuOwners, Workspace
from zenc.runtime.gpu.capacity import Capacity, CapacityLearner, FixedCapacity, LearnedCapacity
from zenc.runtime.gpu.cuda_graph import MOST_STAGED, OwnGraphs, ReplayedCall
from zenc.runtime.gpu.device import GpuDevice
from zenc.runtime.gpu.library import CallLibrary
from zenc.runtime.gpu.partition import DevicePartition, DevicePartitions, cut_at, has_tables
from zenc.runtime.gpu.sequence import load_sequence
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import allreduce_max
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.losses import CallLosses
from zenc.scheme.compression import Rounded
from zenc.wire.constants import MOST_OWNED_ELEMENTS
from zenc.wire.formats import format_costs

ORDERED = ("CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_LAUNCH_ORDER_IMPLICIT")
"""Variables that, where they are 1, have kernels of one communicator wait for those of another one."""
LEARNS = "learn how much room calls need"


@dataclass(slots=True)
class NcclGroup:
    """A communicator on ``gpu``, made by ``library``: any unit of call sequences, which all know its layout.

    There is one for each GPU, shared by all schemes that are loaded there: each has buffers of its own on the GPU, and
    kernels of two could wait for each other.
    """

    gpu: str
    library: CallLibrary
    handle: int

    def close(self) -> None:
        """Close the communicator; no call may be under way, and none comes after this."""
        handle, self.handle = self.handle, 0
        if handle:
            self.library.close_communicator(handle)


def nccl_group(group: Communicator, gpu: str, library: CallLibrary, deadline: float) -> int:
    """Return the handle of the communicator on this rank's ``gpu``, made by all ranks together where one lacks it.

    Raises SynchronisationError: ``group-not-made``, and those of ``GroupAgreement.all``.
    """
    return group.worker.within(lambda: _known_or_made(group, gpu, library, deadline))


def cautions(environment: Mapping[str, str]) -> list[str]:
    """Return warnings about variables under which calls and DDP's own messages may wait for each other."""
    return [
        f"{name}=1: a call that goes on beside DDP's all-reduces, as those of attach do, may wait for them, and they "
        "for it, on different ranks in a different order; unset it, or have nothing else in flight"
        for name in ORDERED
        if environment.get(name) == "1"
    ]


def _known_or_made(group: Communicator, gpu: str, library: CallLibrary, deadline: float) -> int:
    known = [made for made in group.nccl if made.gpu == gpu]
    agreement = GroupAgreement(group, deadline)
    if agreement.all(bool(known)):
        return known[-1].handle
    try:
        name = library.unique_id() if group.size > 1 and group.rank == 0 else b""
    except SynchronisationError as error:
        agreement.tell(error)
        raise
    name = agreement.broadcast(name)
    for caution in cautions(os.environ) if group.size > 1 and group.rank == 0 else ():
        notice(caution)
    made = NcclGroup(gpu, library, library.open_communicator(name, group.size, group.rank, deadline))
    group.nccl.append(made)
    return made.handle


class GpuBackend:
    """The plan of ``artifact`` on ``gpu``, made by all ranks of ``group`` together.

    Raises VerificationError, BuildError, TargetError, and SynchronisationError ``group-not-made``.
    """

    def __init__(
        self, artifact: Artifact, gpu: GpuDevice, group: Communicator, deadline: float, capacity: Capacity | None = None
    ) -> None:
        artifact = replace(artifact, plan=artifact.plan.gathering)
        plan, parts = artifact.plan, artifact.plan.parts(group.size)
        self.code = gpu.name
        self._plan, self._ranks = plan, (group.size, group.rank)
        self._pieces: dict[PhaseKind | Rounded | None, GpuContext] = {}
        self._graphs = OwnGraphs()
        try:
            images = gpu.images(artifact)  # first: what compiles them runs beside g++
            self._played = load_sequence(artifact, group.size, group.rank, deadline)
            library, program = self._played.library, self._played.program
            library.bind(*gpu.libraries(group.size))
            kernels = gpu.kernels.of(artifact, library, images, has_tables=has_tables(plan.mapping))
            keeps = plan.is_lossy or plan.feedback is not None
            compression = GpuCompression(gpu, artifact, deadline) if keeps else None
        except Exception as error:
            GroupAgreement(group, deadline).tell(error)
            raise
        following = (*(phase.select for phase in plan.phases[1:]), ())
        selections = tuple(chain(*zip((phase.merge for phase in plan.phases), following, strict=True)))
        nccl, nothing = nccl_group(group, gpu.name, library, deadline), gpu.memory(8)
        kinds = (PhaseKind.ANNOUNCE, *VALUE_KINDS) if plan.announces else VALUE_KINDS
        about = plan.scheme, parts, parts, plan.announces, kinds
        called = library, program, kernels, nccl, gpu, nothing, deadline, format_costs(plan.link, gpu=True)
        room = capacity if isinstance(capacity, FixedCapacity) else None
        greatest = partial(allreduce_max, group, purpose=LEARNS) if isinstance(capacity, LearnedCapacity) else None
        self._loaded = GpuContext(*(*about, *called, room, greatest), selections, compression)
        self._cuts = DevicePartitions(plan.mapping, parts, library, gpu.uploaded)

    @property
    def compression(self) -> GpuCompression:
        """The kernels of compression of a plan that selects or encodes."""
        assert self._loaded.compression is not None, "what loses nothing needs no kernels of compression"
        return self._loaded.compression

    def _part(self, part: PhaseKind | Rounded) -> GpuContext:
        """Return the pushes, the pulls or a rounding program, lowered and loaded when first asked for."""
        if part not in self._pieces:
            program = lower_part(self._plan, *self._ranks, part)
            complete, table = len(program.expand.segments), self._played.loaded(program)
            kinds = (part,) if isinstance(part, PhaseKind) else self._loaded.kinds
            self._pieces[part] = replace(self._loaded, complete=complete, kinds=kinds, program=table)
        return self._pieces[part]

    def rounds(self, code: Rounded) -> bool:
        """Return whether the program that rounds is proved; capacity mode has no room for codes with an index."""
        fixed = self._loaded.announces or self._loaded.capacity is not None
        return not fixed and is_proved(lambda: self._part(code))

    def announce_and_rest(self) -> tuple[GpuContext, GpuContext]:
        """Return the program of a plan by holders, cut after the agreement, made when first asked for."""
        if None not in self._pieces:
            whole = lower(self._plan, *self._ranks)
            announce, rest = (self._played.loaded(cut(whole), whole) for cut in (announce_of, announced_of))
            kind = PhaseKind.ANNOUNCE
            self._pieces[kind] = replace(self._loaded, complete=0, kinds=(kind,), program=announce)
            self._pieces[None] = replace(self._loaded, kinds=VALUE_KINDS, program=rest)
        return self._pieces[PhaseKind.ANNOUNCE], self._pieces[None]

    def prepare(self, layout: Layout, part: Part = None) -> GpuPrepared:
        """Prepare calls.

        Raises TensorError: ``tensor-too-large``, or ``out-of-memory`` for a hashed mapping's tables.
        """
        cut = self._cuts.of(layout.units, layout.width)
        if isinstance(part, Rounded):
            return GpuPrepared(self, self._part(part), layout, cut, Workspace())
        if part is not None:
            return GpuPrepared(self, self._part(part), layout, cut, Workspace(), in_units(layout))
        if self._loaded.announces and layout.width == 1 and layout.units > MOST_OWNED_ELEMENTS:
            raise _too_many_elements(self._loaded.scheme, layout.units)
        greatest = self._loaded.greatest
        learner = None if greatest is None else CapacityLearner(greatest, layout.nbytes)
        graphs = self._graphs if learner and not layout.is_sparse and layout.nbytes <= MOST_STAGED else None
        return GpuPrepared(self, self._loaded, layout, cut, Workspace(learner), None, graphs)


def _too_many_elements(scheme: str, units: int) -> TensorError:
    message = f"{scheme} would choose an owner for each of {units:,} single elements, which is slow on a GPU"
    help = (
        "rows=True if the tensor is mostly rows of zeros; else a scheme that is balanced by permutation, as 'balanced'"
    )
    return TensorError(Diagnostic("tensor-too-large", message, help=help))


@dataclass(frozen=True, slots=True)
class GpuPrepared:
    """The common parts of calls over tensors of one ``layout``.

    Results are of ``of_result``, or ``layout`` for None.
    """

    backend: GpuBackend
    loaded: GpuContext
    layout: Layout
    cut: DevicePartition
    workspace: Workspace
    of_result: Layout | None = None
    graphs: OwnGraphs | None = None
    announcing: Workspace = field(default_factory=Workspace)
    announced: Workspace = field(default_factory=Workspace)

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> GpuCall:
        """Begin a call whose messages carry ``header``, and which loses values as ``losses`` says."""
        cut = self.cut if losses is None or not losses.ends else cut_at(losses.ends)
        if self.graphs is not None and losses is None:
            return ReplayedCall(self.graphs, self.loaded, self.layout, cut, header, self.workspace)
        return GpuCall(self.loaded, self.layout, cut, header, self.workspace, losses, self.of_result)

    def ensure_announces(self) -> None:
        """Do nothing: every plan by holders announces here, and all ranks hear all, however many they are."""

    def start_announce(self, header: CallHeader) -> GpuAnnounceCall:
        """Begin a call of a plan by holders whose messages carry ``header``."""
        announce, _ = self.backend.announce_and_rest()
        layout = replace(self.layout, width=0)
        return GpuAnnounceCall(announce, layout, self.cut, header, self.announcing)

    def start_announced(self, header: CallHeader, owners: AgreedOwners) -> AnnouncedCall:
        """Begin a call with ``owners``; where it has to begin again, that is the call of the next number."""
        assert isinstance(owners, GpuOwners)
        _, rest = self.backend.announce_and_rest()
        first = GpuCall(rest, self.layout, self.cut, header, self.announced, owners=owners)
        return AnnouncedCall(first, partial(self.start, replace(header, call=header.call + 1)), 0)
