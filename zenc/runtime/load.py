"""Artifact -> Collective, by all ranks of a group together."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from zenc.codegen.artifact import Artifact
from zenc.errors import ZencError
from zenc.runtime.capacity import Shares, capacity_of
from zenc.runtime.collective import Collective
from zenc.runtime.communicator import Communicator, communicator_for, in_a_line
from zenc.runtime.stages import Stages
from zenc.runtime.work import Work


def load_collective(
    obtain: Callable[[int], Artifact],
    group: dist.ProcessGroup | None,
    deadline: float,
    shares: Shares | None = None,
) -> Collective:
    """Get the artifact, build it, and agree with all ranks that they hold the same one.

    A rank that fails on the way still takes part in the agreement, so that the others learn of it at once and by
    name, and then raises its own error.
    """
    communicator = communicator_for(group, deadline)
    communicator.demand_whole()
    try:
        artifact = obtain(communicator.size)
        capacity = capacity_of(shares, artifact.plan, communicator.size)
        stages = Stages(artifact, communicator, deadline, capacity)
        device = _usual_device(communicator)
        if device.type == "cpu":
            stages.on(device)  # what can fail fails here, on all ranks at once
    except Exception as failure:
        _tell_failure(communicator, failure, deadline)
        raise
    scheme = artifact.plan.scheme[:60] + (f" with {capacity}" if capacity else "")
    _agree(communicator, {"digest": artifact.plan.digest, "scheme": scheme, "error": ""}, deadline)
    if device.type != "cpu":
        stages.on(device)  # has an agreement of its own
    return Collective(artifact, communicator, stages.on)


def _usual_device(communicator: Communicator) -> torch.device:
    """Where the tensors of the user's group mostly are: on this process's GPU, if it is a group for those only."""
    parent = communicator.parent()
    kinds = {device.type for device in getattr(parent, "_device_types", ())}
    return torch.device("cuda", torch.cuda.current_device()) if kinds == {"cuda"} else torch.device("cpu")


def _tell_failure(communicator: Communicator, failure: Exception, deadline: float) -> None:
    """Let the other ranks fail with the name of this one."""
    try:
        _agree(communicator, {"digest": "", "scheme": "", "error": in_a_line(failure)}, deadline)
    except ZencError:
        return  # this rank's own error says more


def _agree(communicator: Communicator, pledge: dict[str, str], deadline: float) -> None:
    """Agreement takes its turn among the calls of the group, so that it meets the others' agreement."""

    def agreement(_: Work) -> torch.Tensor:
        communicator.agree(pledge, deadline)
        return torch.empty(0)

    communicator.worker.run(agreement)
