"""Backends of a collective: one for each device, made when its first tensor comes."""

from __future__ import annotations

import logging

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.render import UnitInputs, render
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import Backend
from zenc.runtime.communicator import Communicator
from zenc.runtime.cpu import library
from zenc.runtime.cpu.backend import CpuBackend
from zenc.runtime.gpu.fixed_capacity import FixedCapacity

log = logging.getLogger("zenc")


class Backends:
    """The backends of ``artifact`` by device. ``deadline``: seconds for a build, and for any single wait.

    With a ``capacity`` GPUs use capacity mode. On the CPU counts are known anyway, and all is exact.
    """

    def __init__(
        self, artifact: Artifact, communicator: Communicator, deadline: float, capacity: FixedCapacity | None = None
    ) -> None:
        self.artifact, self.communicator, self.deadline = artifact, communicator, deadline
        self.capacity = capacity
        self._made: dict[torch.device, Backend] = {}

    def on(self, device: torch.device) -> Backend:
        """The backend for tensors on ``device``.

        Raises TensorError ``other-gpu`` if there is one for another GPU, BuildError, VerificationError and their like.
        """
        made = self._made.get(device)
        if made is None:
            self._ensure_one_gpu(device)
            made = self._made[device] = self._gpu(device) if device.type == "cuda" else self._cpu()
        return made

    def _ensure_one_gpu(self, device: torch.device) -> None:
        """Other ranks would wait for this one on the GPU that it had before."""
        for known in self._made:
            if known.type == device.type == "cuda":
                message = f"the tensor is on {device}, and this collective sums on {known}"
                help = "one process a GPU: torch.cuda.set_device(local_rank) before anything else; or load it once more"
                raise TensorError(Diagnostic("other-gpu", message, help=help))

    def _gpu(self, device: torch.device) -> Backend:
        from zenc.runtime.gpu.backend import GpuBackend
        from zenc.runtime.gpu.device import TorchGpu

        with torch.cuda.device(device):  # kernels, events and NCCL's communicator belong to the current device
            made = GpuBackend(self.artifact, TorchGpu(device), self.communicator, self.deadline, self.capacity)
        self._tell(str(device))
        return made

    def _cpu(self) -> Backend:
        artifact, communicator = self.artifact, self.communicator
        sources = artifact.sources if artifact.target == "cpu" else render(UnitInputs.of(artifact.plan), "cpu")
        kernels = library.load(sources, deadline_s=self.deadline, scheme=artifact.plan.scheme)
        self._tell(str(kernels.path))
        caution = ""
        if self.capacity and communicator.rank == 0:
            caution = f"{artifact.name}: capacity= is for GPUs; on the CPU all is counted, and it changes nothing"
        return CpuBackend(artifact.plan, kernels, communicator.transport, self.deadline, caution)

    def _tell(self, code: str) -> None:
        if self.communicator.rank == 0:
            plan, size = self.artifact.plan, self.communicator.size
            log.info("runs %s (plan %s) on %d ranks: %s", plan.scheme, plan.digest[:12], size, code)
