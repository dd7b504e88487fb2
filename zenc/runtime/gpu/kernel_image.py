"""The kernels for a GPU: compiled on its machine where that can be done, else those that came with the artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zenc.codegen.build.arch import arch_for, listed
from zenc.codegen.build.build_once import DEADLINE_SECONDS
from zenc.codegen.build.gpu_kernels import Cubin, cubin
from zenc.codegen.build.nvrtc import find_compiler, known_archs
from zenc.errors import ArtifactError, Diagnostic
from zenc.runtime.gpu.driver import Driver, GpuInfo


def kernels_for(
    gpu: GpuInfo,
    driver: Driver,
    sources: Mapping[str, str],
    cubins: Sequence[Cubin] = (),
    module: str = "",
    *,
    deadline_s: float = DEADLINE_SECONDS,
) -> Cubin:
    """The ``kernels.cu`` of ``sources`` for ``gpu``, from the cache if it was compiled before; else one of ``cubins``.

    What is compiled is the ``module`` alone, if one is named (``modules_of``).

    A compiler comes first: what it makes of the plan needs no trust in whoever made the artifact. Raises ArtifactError
    ``wrong-arch`` where there is neither, and what compiling raises.
    """
    compiler, reasons = find_compiler(driver.cuda)
    arch = arch_for(gpu.arch, known_archs(compiler)) if compiler else None
    if compiler and arch:
        return cubin(sources, arch, compiler, deadline_s, module)
    if compiler:
        reasons = (*reasons, f"{compiler.name} compiles for {listed(known_archs(compiler))} only")
    fit = [made for made in cubins if made.arch.runs_on(gpu.arch) and made.cuda <= driver.cuda]
    if not fit:
        raise _wrong_arch(gpu, driver, cubins, reasons)
    return max(fit, key=lambda made: made.arch)


def _wrong_arch(gpu: GpuInfo, driver: Driver, cubins: Sequence[Cubin], reasons: Sequence[str]) -> ArtifactError:
    inside = ", ".join(f"{made.arch} (CUDA {made.cuda})" for made in cubins) or "none"
    message = f"there are no kernels for {gpu.name}, which is {gpu.arch}, under a driver of CUDA {driver.cuda}"
    notes = (f"the artifact has: {inside}", "nothing here compiles them", *reasons)
    help = (
        f"'zenc compile --target cuda --arch {gpu.arch}' where NVRTC of CUDA {driver.cuda} is, or install it here: "
        f"pip install 'zenc[cuda{driver.cuda}]'"
    )
    return ArtifactError(Diagnostic("wrong-arch", message, notes=notes, help=help))
