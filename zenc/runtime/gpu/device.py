"""The GPU of a call's tensors: its libraries, kernels, memory and streams.

``TorchGpu`` is PyTorch's: its caching allocator, its current stream, its NCCL. A test has an emulated one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.build.arch import Arch, arch_for, listed
from zenc.codegen.build.gpu_kernels import SOURCE, Cubin, cubin, kept, modules_of, text_of
from zenc.codegen.build.nvrtc import Nvrtc, find_compiler, known_archs
from zenc.codegen.build.shipped import shipped
from zenc.codegen.build.worker import compile_ahead
from zenc.codegen.render import compression_unit
from zenc.errors import ArtifactError, BuildError, Diagnostic, TensorError
from zenc.plan.ir import Plan
from zenc.runtime.gpu.driver import Driver, GpuInfo, driver, find_nccl
from zenc.runtime.gpu.library import FETCH, KernelLibrary
from zenc.runtime.gpu.partition import Words

ImageOf = Callable[[str], bytes]
"""A function from a kernel's name to the cubin that has it; raises as compiling does."""
FIRST = "zenc_gather"
"""A kernel of the module that every call needs."""


class LoadedKernels:
    """The kernels of ``image_of`` in the current context, a module at a time; ``handle`` is the argument of calls.

    A module that takes a second to compile delays the call that needs it; peers wait for it as for any late rank.

    Raises BuildError and ArtifactError, here or as the ``failure`` of the call that first needs a module.
    """

    def __init__(self, library: KernelLibrary, image_of: ImageOf, first: str, has_tables: bool) -> None:
        self._library, self._image_of = library, image_of
        self.failure: Exception | None = None
        self._adding = threading.Lock()
        self._fetching = FETCH(self._fetch)
        self.handle = library.load_kernels(image_of(first), self._fetching, has_tables)

    def take_failure(self) -> Exception | None:
        """Return the failure of a call that missed a module, if there is one; the next call fails by its own."""
        failure, self.failure = self.failure, None
        return failure

    def _fetch(self, handle: int, name: bytes) -> int:
        try:
            with self._adding:  # groups on one GPU have a thread each
                self._library.add_kernels(handle, self._image_of(name.decode()))
        except Exception as error:  # no exception crosses C++
            self.failure = error
            return 0
        return 1


class DeviceKernels:
    """The kernels on one GPU: loaded once for all collectives of a mapping, also those that are rebuilt.

    They stay as long as this: to unload a module may wait for all that runs on the GPU, and graphs may hold kernels.
    """

    def __init__(self) -> None:
        self._loaded: dict[tuple[object, ...], LoadedKernels] = {}

    def of(
        self,
        artifact: Artifact,
        library: KernelLibrary,
        image_of: ImageOf,
        first: str = FIRST,
        *,
        has_tables: bool = False,
    ) -> LoadedKernels:
        """Return the kernels of ``artifact``, loaded by ``image_of`` if missing; raises as ``LoadedKernels`` does."""
        source = artifact.sources[SOURCE] if artifact.target == "cuda" else type(artifact.plan.mapping)
        key = source, library.path, first
        if key not in self._loaded:
            self._loaded[key] = LoadedKernels(library, image_of, first, has_tables)
        return self._loaded[key]


@cache
def kernels_on(device: torch.device) -> DeviceKernels:
    """Return the kernels of this process on ``device``."""
    return DeviceKernels()


def kernels_for(
    gpu: GpuInfo, driver: Driver, sources: Mapping[str, str], cubins: Sequence[Cubin] = (), module: str = ""
) -> Cubin:
    """Return ``kernels.cu`` of ``sources`` for ``gpu``, from the cache or compiled; otherwise one of ``cubins``.

    Only the ``module`` is compiled, if one is named (``modules_of``).

    A compiler comes first: its kernels need no trust in the maker of the artifact. Raises ArtifactError ``wrong-arch``
    without either, and as compiling does.
    """
    compiler, arch, reasons = _compiler_for(gpu, driver)
    if compiler and arch:
        return cubin(sources, arch, compiler, module=module)
    fit = [made for made in cubins if made.arch.runs_on(gpu.arch) and made.cuda <= driver.cuda]
    if not fit:
        raise _wrong_arch(gpu, driver, cubins, reasons)
    return max(fit, key=lambda made: made.arch)


def _compiler_for(gpu: GpuInfo, driver: Driver) -> tuple[Nvrtc | None, Arch | None, Sequence[str]]:
    """Return the compiler for ``gpu`` and the architecture that it is to compile for, or the reasons against any."""
    compiler, reasons = find_compiler(driver.cuda)
    arch = arch_for(gpu.arch, known_archs(compiler)) if compiler else None
    if compiler and not arch:
        reasons = (*reasons, f"{compiler.name} compiles for {listed(known_archs(compiler))} only")
    return compiler, arch, reasons


def images_of(artifact: Artifact, gpu: GpuInfo, driver: Driver) -> ImageOf:
    """Return the kernels of ``artifact`` for ``gpu``: shipped ones, or those that ``zenc compile`` left in the cache.

    Others come module by module, as ``kernels_for`` has them. Processes compile what calls on float32 tensors may need,
    from now on, and what those on other types may need from the first such module on. An image raises as
    ``kernels_for`` does. Raises CacheError.
    """
    sources = artifact.gpu_sources()

    def ready(unit: Mapping[str, str], dtype: str) -> Cubin | None:
        if made := shipped(unit, gpu.arch, driver.cuda):
            return made
        compiler, arch, _ = _compiler_for(gpu, driver)
        if compiler and arch:  # otherwise the call that needs a module reports it
            if unit.items() <= sources.items() and (made := kept(sources, arch, compiler)):
                return made
            names = [name for name in dict.fromkeys(modules_of(unit).values()) if _is_usual(name, artifact.plan)]
            usual = [name for name in names if dtype_of(name) == dtype]
            compile_ahead(text_of(unit), arch, compiler, tuple(usual))
        return None

    for name, text in sources.items():
        ready({name: text}, "32")

    def image(kernel: str) -> bytes:
        unit, module = unit_with(kernel, sources)
        return (ready(unit, dtype_of(module)) or kernels_for(gpu, driver, unit, artifact.cubins, module)).image

    return image


def dtype_of(module: str) -> str:
    """Return the words of a module's name for its type, ``16``, ``64``, ``F16`` or ``BF16``; 32 for all others."""
    return next((word for word in module.split("_") if word in ("16", "64", "F16", "BF16")), "32")


def _is_usual(module: str, plan: Plan) -> bool:
    """Return whether calls of ``plan`` may need a module of compression; one that is missed costs time, and no more."""
    codes, selects = (any(phase.code for phase in plan.phases), any(phase.selects for phase in plan.phases))
    need = {"CODES": codes, "SELECT": selects or plan.feedback is not None, "LINEAR": selects or codes}
    return need.get(module.split("_")[0], True)


def unit_with(kernel: str, sources: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the file with ``kernel``, of ``sources`` or of compression, and the kernel's module."""
    own = {SOURCE: sources[SOURCE]}
    for unit in (own, compression_unit()):
        if (module := modules_of(unit).get(kernel)) is not None:
            return unit, module
    raise BuildError(Diagnostic("library-broken", f"no source has the kernel {kernel}"))


def _wrong_arch(gpu: GpuInfo, driver: Driver, cubins: Sequence[Cubin], reasons: Sequence[str]) -> ArtifactError:
    inside = ", ".join(f"{made.arch} (CUDA {made.cuda})" for made in cubins) or "none"
    message = f"there are no kernels for {gpu.name}, which is {gpu.arch}, under a driver of CUDA {driver.cuda}"
    notes = (f"the artifact has: {inside}", "nothing here compiles them", *reasons)
    help = (
        f"'zenc compile --target cuda --arch {gpu.arch}' where NVRTC of CUDA {driver.cuda} is, or install it here: "
        f"pip install 'zenc[cuda{driver.cuda}]'"
    )
    return ArtifactError(Diagnostic("wrong-arch", message, notes=notes, help=help))


class GpuDevice(Protocol):
    """A GPU, for the ranks that run on it."""

    @property
    def name(self) -> str:
        """The name of the device in this process."""

    @property
    def kernels(self) -> DeviceKernels:
        """The kernels that are loaded on the GPU."""

    def libraries(self, size: int) -> tuple[str, str | None]:
        """Return the paths of CUDA's driver and of NCCL, which one rank alone does not need.

        Raises BuildError ``cuda-unavailable``.
        """

    def images(self, artifact: Artifact) -> ImageOf:
        """Return the kernels of ``artifact`` for this GPU: compiled if possible, otherwise those of the artifact.

        An image raises ArtifactError ``wrong-arch`` and BuildError.
        """

    def stream(self) -> int:
        """Return the stream that the caller's tensors are ready on, a CUstream handle."""

    def memory(self, size: int) -> torch.Tensor:
        """Return ``size`` bytes, uint8 [size], that the stream may use as soon as the tensors are ready.

        Raises MemoryError or torch.OutOfMemoryError.
        """

    def view(self, address: int, size: int) -> torch.Tensor:
        """Return the ``size`` bytes at ``address`` of the GPU's memory, uint8 [size], without a copy."""

    def pinned(self, numbers: int) -> torch.Tensor:
        """Return memory of the host, int64 [numbers], that the GPU can write."""

    def uploaded(self, words: Words) -> tuple[int, object]:
        """Return the address of a copy of ``words`` in the GPU's memory, complete at return, and its owner.

        Raises TensorError ``out-of-memory``.
        """


class TorchGpu:
    """A GPU that PyTorch drives."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        torch.cuda.synchronize(device)  # from now on this process has a context there
        self.kernels = kernels_on(device)

    @property
    def name(self) -> str:
        """``cuda:0``."""
        return str(self.device)

    def libraries(self, size: int) -> tuple[str, str | None]:
        """Return paths of the driver, and of NCCL where there are several ranks."""
        return driver().path, find_nccl().path if size > 1 else None

    def images(self, artifact: Artifact) -> ImageOf:
        """Return the kernels of ``artifact`` for this GPU, as ``images_of`` does."""
        return images_of(artifact, driver().gpu(self.device.index), driver())

    def stream(self) -> int:
        """Return the current stream, as a handle of CUDA."""
        return torch._C._cuda_getCurrentRawStream(self.device.index)

    def memory(self, size: int) -> torch.Tensor:
        """Return device memory, uint8 [size]."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def view(self, address: int, size: int) -> torch.Tensor:
        """Return device memory that others have allocated, uint8 [size]."""
        return torch.as_tensor(_Region(address, size), device=self.device)

    def pinned(self, numbers: int) -> torch.Tensor:
        """Return pinned host memory, zeros, int64 [numbers]."""
        return torch.zeros(numbers, dtype=torch.int64, pin_memory=True, device="cpu")

    def uploaded(self, words: Words) -> tuple[int, object]:
        """Return the device address of a copy of ``words``, and its owner; raises TensorError (``out-of-memory``)."""
        try:
            copy = torch.frombuffer(words, dtype=torch.int64).to(self.device)
        except torch.OutOfMemoryError as error:
            message = f"there is no memory left on {self.device} for tables of {8 * len(words):,} bytes"
            help = (
                "leave the schemes more of the GPU's memory: smaller batches, or fewer ids under hierarchical hashing"
            )
            raise TensorError(Diagnostic("out-of-memory", message, help=help)) from error
        torch.cuda.synchronize(self.device)
        return copy.data_ptr(), copy


class _Region:
    """Bytes of device memory, as the CUDA Array Interface has them."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


class Arena:
    """The buffers of one call, which live as long as it does; arrays of them live on."""

    def __init__(self, gpu: GpuDevice) -> None:
        self._gpu = gpu
        self._buffers: dict[int, torch.Tensor] = {}

    def allocate(self, _: object, size: int) -> int:
        """Return the address of ``size`` more bytes; 0 if no memory is left. C++ calls this, so it raises nothing."""
        try:
            buffer = self._gpu.memory(size)
        except (MemoryError, RuntimeError):  # torch.OutOfMemoryError is a RuntimeError
            return 0
        address = buffer.data_ptr()
        self._buffers[address] = buffer
        return address

    def array(self, address: int | None, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return the array [n] that the call left at an address of this arena; an empty one has no address."""
        count = 1
        for extent in shape:
            count *= extent
        if not count or address is None:
            return self._gpu.memory(0).view(dtype).reshape(shape)
        return self._buffers[address][: count * dtype.itemsize].view(dtype).reshape(shape)
