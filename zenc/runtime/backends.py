"""The stages of a collective: one for each device, made when its first tensor comes."""

from __future__ import annotations

import logging

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.render import UnitInputs, render
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import Opener, Stage
from zenc.runtime.communicator import Communicator
from zenc.runtime.cpu import library
from zenc.runtime.cpu.backend import host_stage
from zenc.runtime.gpu.fixed_capacity import FixedCapacity
from zenc.runtime.layout import Layout

log = logging.getLogger("zenc")


class Stages:
    """What runs the plan of ``artifact`` on each device. ``deadline``: seconds for a build, and for any single wait.

    With a ``capacity`` GPUs use capacity mode. On the CPU counts are known anyway, and all is exact.
    """

    def __init__(
        self, artifact: Artifact, communicator: Communicator, deadline: float, capacity: FixedCapacity | None = None
    ) -> None:
        self.artifact, self.communicator, self.deadline = artifact, communicator, deadline
        self.capacity = capacity
        self._made: dict[torch.device, Stage] = {}
        self._told = False

    def on(self, device: torch.device) -> Stage:
        """The stage for tensors on ``device``.

        Raises TensorError ``other-gpu`` if there is one for another GPU, BuildError, VerificationError and their like.
        """
        made = self._made.get(device)
        if made is None:
            self._ensure_one_gpu(device)
            made = self._made[device] = self._gpu(device) if device.type == "cuda" else self._host()
        return made

    def _ensure_one_gpu(self, device: torch.device) -> None:
        """Other ranks would wait for this one on the GPU that it had before."""
        for known in self._made:
            if known.type == device.type == "cuda":
                message = f"the tensor is on {device}, and this collective sums on {known}"
                help = "one process a GPU: torch.cuda.set_device(local_rank) before anything else; or load it once more"
                raise TensorError(Diagnostic("other-gpu", message, help=help))

    def _gpu(self, device: torch.device) -> Stage:
        from zenc.runtime.gpu.backend import gpu_stage
        from zenc.runtime.gpu.device import TorchGpu

        with torch.cuda.device(device):  # kernels, events and NCCL's communicator belong to the current device
            made = gpu_stage(self.artifact, TorchGpu(device), self.communicator, self.deadline, self.capacity)
        self._tell(str(device))
        return made

    def _host(self) -> Stage:
        artifact, communicator = self.artifact, self.communicator
        sources = artifact.sources if artifact.target == "cpu" else render(UnitInputs.of(artifact.plan), "cpu")
        kernels = library.load(sources, deadline_s=self.deadline, scheme=artifact.plan.scheme)
        self._tell(str(kernels.path))
        stage = host_stage(artifact.plan, kernels, communicator.transport, self.deadline)
        return self._without_capacity(stage) if self.capacity else stage

    def _without_capacity(self, stage: Stage) -> Stage:
        """``stage``, which says at its first tensor that it counts all the same; it may have been made for none."""

        def prepare(layout: Layout) -> Opener:
            if self.communicator.rank == 0 and not self._told:
                self._told = True
                log.warning(
                    "%s: capacity= is for GPUs; on the CPU all is counted, and it changes nothing", self.artifact.name
                )
            return stage(layout)

        return prepare

    def _tell(self, code: str) -> None:
        if self.communicator.rank == 0:
            plan, size = self.artifact.plan, self.communicator.size
            log.info("runs %s (plan %s) on %d ranks: %s", plan.scheme, plan.digest[:12], size, code)
