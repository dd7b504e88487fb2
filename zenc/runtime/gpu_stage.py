"""A plan on a GPU: the generated call sequence of this rank, its kernels, and NCCL between the ranks.

Stage = CallSequence of this rank, kernels in the GPU's context, communicator
prepare(layout) -> open(envelope) -> GpuCall
"""

from __future__ import annotations

from zenc.codegen.artifact import Artifact
from zenc.codegen.sequence_code import lowered, render_sequences
from zenc.errors import SynchronisationError
from zenc.runtime.capacity import Capacity
from zenc.runtime.communicator import Communicator, in_a_line
from zenc.runtime.gpu import Gpu
from zenc.runtime.gpu_call import GpuCall, Loaded, Workspace
from zenc.runtime.layout import Layout
from zenc.runtime.reduction import Opener, Stage
from zenc.targets.cuda import sequence as targets
from zenc.targets.cuda.tables import Cuts


def gpu_stage(
    artifact: Artifact, gpu: Gpu, group: Communicator, deadline: float, capacity: Capacity | None = None
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
        name = library.unique_id() if group.size > 1 and group.rank == 0 else b""
    except Exception as error:
        _share(group, b"", in_a_line(error), deadline)
        raise
    name = _share(group, name, "", deadline)
    communicator = library.open_communicator(name, group.size, group.rank, deadline)
    nothing, announces = gpu.memory(8), bool(plan.announce)
    loaded = Loaded(plan.scheme, parts, announces, library, kernels, communicator, gpu, nothing, deadline, capacity)
    cuts = Cuts(plan.mapping, parts, library, gpu.uploaded)

    def prepare(layout: Layout) -> Opener:
        cut, workspace = cuts.of(layout.units), Workspace()
        return lambda envelope: GpuCall(loaded, layout, cut, envelope, workspace)

    return prepare


def _share(group: Communicator, name: bytes, error: str, deadline: float) -> bytes:
    """The name that rank 0 gives the ranks' NCCL group; all ranks ask for it at the same place among their calls.

    A rank that fails takes part, so that the others learn of it at once, and then raises its own error.
    """
    try:
        return group.worker.within(lambda: group.share(name, error, deadline))
    except SynchronisationError:
        if not error:
            raise
        return b""
