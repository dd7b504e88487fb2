"""Kernels on a GPU, compiled on its machine where that can be done, else those that came with the artifact.

They are loaded a module at a time: each when a call first launches one of its kernels. A module that takes a second to
compile delays one call; peers wait for it as for any rank that is late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zenc.codegen.build.arch import arch_for, listed
from zenc.codegen.build.build_once import DEADLINE_SECONDS
from zenc.codegen.build.gpu_kernels import Cubin, cubin
from zenc.codegen.build.nvrtc import find_compiler, known_archs
from zenc.errors import ArtifactError, Diagnostic
from zenc.runtime.gpu.driver import Driver, GpuInfo
from zenc.runtime.gpu.library import FETCH, CallLibrary

ImageOf = Callable[[str], bytes]
"""The cubin that has a kernel, by the kernel's name. Raises what compiling raises."""
FIRST = "zenc_gather"
"""A kernel of the module that every call needs."""


class LoadedKernels:
    """The kernels of ``image_of`` in the current context; ``handle`` is what calls take.

    Raises BuildError and ArtifactError, here or as the ``failure`` of the call that first needs a module.
    """

    def __init__(self, library: CallLibrary, image_of: ImageOf) -> None:
        self._library, self._image_of = library, image_of
        self.failure: Exception | None = None
        self._fetching = FETCH(self._fetch)
        self.handle = library.load_kernels(image_of(FIRST), self._fetching)

    def _fetch(self, handle: int, name: bytes) -> int:
        try:
            self._library.add_kernels(handle, self._image_of(name.decode()))
        except Exception as error:  # no exception crosses C++
            self.failure = error
            return 0
        return 1


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
