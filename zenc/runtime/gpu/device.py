"""The GPU of a call's tensors: libraries, kernels, memory and streams.

``TorchGpu`` is PyTorch's: its caching allocator, its current stream, its NCCL. A test has an emulated one.
"""

from __future__ import annotations

from typing import Protocol

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.build.gpu_kernels import modules_of
from zenc.codegen.render import UnitInputs, render
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.call_queue import new_stream
from zenc.runtime.gpu.driver import driver, find_nccl
from zenc.runtime.gpu.kernels import ImageOf, kernels_for
from zenc.runtime.gpu.partition import Words


class GpuDevice(Protocol):
    """One GPU, for the ranks that run on it."""

    @property
    def name(self) -> str:
        """The name of the device in this process."""

    def libraries(self, size: int) -> tuple[str, str | None]:
        """The paths of CUDA's driver and of NCCL, which one rank alone does not need.

        Raises BuildError ``cuda-unavailable``.
        """

    def images(self, artifact: Artifact) -> ImageOf:
        """The kernels of ``artifact`` as this GPU loads them: compiled where they can be, else those of the artifact.

        An image raises ArtifactError ``wrong-arch`` and BuildError.
        """

    def streams(self) -> tuple[int, int]:
        """The stream that the caller's tensors are ready on, and one beside it; CUstream handles."""

    def memory(self, size: int) -> torch.Tensor:
        """``size`` bytes, uint8 [size], that the stream may use as soon as the tensors are ready.

        Raises MemoryError or torch.OutOfMemoryError.
        """

    def pinned(self, numbers: int) -> torch.Tensor:
        """Memory of the host, int64 [numbers], that the GPU can write."""

    def uploaded(self, words: Words) -> tuple[int, object]:
        """A copy of ``words`` in the GPU's memory, which is there when this returns: its address, and what owns it.

        Raises TensorError ``out-of-memory``.
        """


class TorchGpu:
    """A GPU that PyTorch drives."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        torch.cuda.synchronize(device)  # from now on this process has a context there
        self._side = new_stream(device)

    @property
    def name(self) -> str:
        """``cuda:0``."""
        return str(self.device)

    def libraries(self, size: int) -> tuple[str, str | None]:
        """Paths of the driver, and of NCCL where there are several ranks."""
        return driver().path, find_nccl().path if size > 1 else None

    def images(self, artifact: Artifact) -> ImageOf:
        """The kernels of ``artifact`` for this GPU, module by module."""
        started, own = driver(), artifact.target == "cuda"
        gpu, sources = started.gpu(self.device.index), artifact.sources
        sources = sources if own else render(UnitInputs.of(artifact.plan), "cuda")
        modules = modules_of(sources)
        return lambda kernel: kernels_for(gpu, started, sources, artifact.cubins, modules[kernel]).image

    def streams(self) -> tuple[int, int]:
        """The current stream and the side stream, as handles of CUDA."""
        return torch.cuda.current_stream(self.device).cuda_stream, self._side.cuda_stream

    def memory(self, size: int) -> torch.Tensor:
        """Device memory, uint8 [size]."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def pinned(self, numbers: int) -> torch.Tensor:
        """Pinned host memory, zeros, int64 [numbers]."""
        return torch.zeros(numbers, dtype=torch.int64, pin_memory=True)

    def uploaded(self, words: Words) -> tuple[int, object]:
        """The address of a copy of ``words`` on the device, and its owner; raises TensorError (``out-of-memory``)."""
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


class Arena:
    """The buffers of one call, which live as long as it; arrays of them live on."""

    def __init__(self, gpu: GpuDevice) -> None:
        self._gpu = gpu
        self._buffers: dict[int, torch.Tensor] = {}

    def allocate(self, _: object, size: int) -> int:
        """The address of ``size`` more bytes; 0 if there are none left. C++ calls this, so it raises nothing."""
        try:
            buffer = self._gpu.memory(size)
        except (MemoryError, RuntimeError):  # torch.OutOfMemoryError is a RuntimeError
            return 0
        address = buffer.data_ptr()
        self._buffers[address] = buffer
        return address

    def array(self, address: int | None, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The array [n] that the call left at an address of this arena; an empty one has no address."""
        count = 1
        for extent in shape:
            count *= extent
        if not count or address is None:
            return self._gpu.memory(0).view(dtype).reshape(shape)
        return self._buffers[address][: count * dtype.itemsize].view(dtype).reshape(shape)
