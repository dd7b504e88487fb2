"""GPU backend: the call sequence of this rank, its kernels, and NCCL between the ranks."""

from __future__ import annotations

from dataclasses import dataclass

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.communicator import Communicator
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.gpu.call import GpuCall, GpuContext, Workspace
from zenc.runtime.gpu.device import GpuDevice
from zenc.runtime.gpu.fixed_capacity import FixedCapacity
from zenc.runtime.gpu.kernels import LoadedKernels
from zenc.runtime.gpu.nccl import nccl_group, tell
from zenc.runtime.gpu.partition import DevicePartition, DevicePartitions
from zenc.runtime.gpu.sequence import load_sequence
from zenc.runtime.layout import Layout
from zenc.wire.constants import MOST_OWNED_ELEMENTS


class GpuBackend:
    """The plan of ``artifact`` on ``gpu``, made by all ranks of ``group`` together.

    Raises VerificationError, BuildError, TargetError, and SynchronisationError ``group-not-made``.
    """

    def __init__(
        self,
        artifact: Artifact,
        gpu: GpuDevice,
        group: Communicator,
        deadline: float,
        capacity: FixedCapacity | None = None,
    ) -> None:
        plan, parts = artifact.plan, artifact.plan.parts(group.size)
        self.code = gpu.name
        try:
            played = load_sequence(artifact, group.size, group.rank, deadline)
            library, program = played.library, played.program
            library.bind(*gpu.libraries(group.size))
            kernels = LoadedKernels(library, gpu.images(artifact))
        except Exception as error:
            tell(group, error, deadline)
            raise
        nccl, nothing, announces = nccl_group(group, gpu.name, library, deadline), gpu.memory(8), plan.announces
        self._loaded = GpuContext(
            plan.scheme, parts, announces, library, program, kernels, nccl, gpu, nothing, deadline, capacity
        )
        self._cuts = DevicePartitions(plan.mapping, parts, library, gpu.uploaded)

    def prepare(self, layout: Layout) -> GpuPrepared:
        """Raises TensorError: ``tensor-too-large``, and ``out-of-memory`` for the tables of a hashed mapping."""
        if self._loaded.announces and layout.width == 1 and layout.units > MOST_OWNED_ELEMENTS:
            raise _too_many_elements(self._loaded.scheme, layout.units)
        return GpuPrepared(self._loaded, layout, self._cuts.of(layout.units, layout.width), Workspace())


def _too_many_elements(scheme: str, units: int) -> TensorError:
    message = f"{scheme} would choose an owner for each of {units:,} single elements, which is slow on a GPU"
    help = (
        "rows=True if the tensor is mostly rows of zeros; else a scheme that is balanced by permutation, as 'balanced'"
    )
    return TensorError(Diagnostic("tensor-too-large", message, help=help))


@dataclass(frozen=True, slots=True)
class GpuPrepared:
    """The common parts of all calls over tensors of one ``layout``."""

    loaded: GpuContext
    layout: Layout
    cut: DevicePartition
    workspace: Workspace

    def start(self, header: CallHeader) -> GpuCall:
        """A call whose messages carry ``header``."""
        return GpuCall(self.loaded, self.layout, self.cut, header, self.workspace)
