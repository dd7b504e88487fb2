"""A plan on a GPU: the generated call sequence of this rank, its kernels, and NCCL between the ranks.

Stage = CallSequence of this rank, kernels in the GPU's context, communicator
prepare(layout) -> open(envelope) -> GpuCall
"""

from __future__ import annotations

from zenc.codegen.artifact import Artifact
from zenc.codegen.sequence_code import lowered, render_sequences
from zenc.runtime.backend_api import Opener, Stage
from zenc.runtime.communicator import Communicator
from zenc.runtime.gpu import library as targets
from zenc.runtime.gpu.call import GpuCall, GpuContext, Workspace
from zenc.runtime.gpu.device import GpuDevice
from zenc.runtime.gpu.fixed_capacity import FixedCapacity
from zenc.runtime.gpu.nccl import nccl_group, tell
from zenc.runtime.gpu.partition import DevicePartitions
from zenc.runtime.layout import Layout


def gpu_stage(
    artifact: Artifact, gpu: GpuDevice, group: Communicator, deadline: float, capacity: FixedCapacity | None = None
) -> Stage:
    """Make the plan of ``artifact`` ready on ``gpu``; all ranks of ``group`` do so together.

    Raises VerificationError, BuildError, TargetError, and SynchronisationError ``group-not-made``.
    """
    plan, parts = artifact.plan, artifact.plan.parts(group.size)
    try:
        steps = lowered(plan, group.size, group.rank)
        library = targets.load(render_sequences([steps]), deadline_s=deadline, scheme=plan.scheme)
        library.bind(*gpu.libraries(group.size))
        kernels = library.load_kernels(gpu.image(artifact))
    except Exception as error:
        tell(group, error, deadline)
        raise
    communicator = nccl_group(group, gpu.name, library, deadline)
    nothing, announces = gpu.memory(8), bool(plan.announce)
    loaded = GpuContext(plan.scheme, parts, announces, library, kernels, communicator, gpu, nothing, deadline, capacity)
    cuts = DevicePartitions(plan.mapping, parts, library, gpu.uploaded)

    def prepare(layout: Layout) -> Opener:
        cut, workspace = cuts.of(layout.units), Workspace()
        return lambda envelope: GpuCall(loaded, layout, cut, envelope, workspace)

    return prepare
