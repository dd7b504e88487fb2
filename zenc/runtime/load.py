"""Artifact -> Collective, by all ranks of a group together."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from zenc.codegen.artifact import Artifact
from zenc.errors import ZencError
from zenc.runtime.collective import Collective
from zenc.runtime.communicator import Communicator, communicator_for
from zenc.runtime.stages import Stages
from zenc.runtime.work import Work


def load_collective(obtain: Callable[[int], Artifact], group: dist.ProcessGroup | None, deadline: float) -> Collective:
    """Get the artifact, build it, and agree with all ranks that they hold the same one.

    A rank that fails on the way still takes part in the agreement, so that the others learn of it at once and by
    name, and then raises its own error.
    """
    communicator = communicator_for(group, deadline)
    communicator.demand_whole()
    try:
        artifact = obtain(communicator.size)
        stages = Stages(artifact, communicator, deadline)
        stages.on(torch.device("cpu"))  # what can fail fails here, on all ranks at once
        collective = Collective(artifact, communicator, stages.on)
    except Exception as failure:
        _tell_failure(communicator, failure, deadline)
        raise
    _agree(communicator, {"digest": artifact.plan.digest, "scheme": artifact.plan.scheme[:60], "error": ""}, deadline)
    return collective


def _tell_failure(communicator: Communicator, failure: Exception, deadline: float) -> None:
    """Let the other ranks fail with the name of this one, in one line of at most a few hundred bytes."""
    text = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, ZencError) and failure.diagnostics:
        text = failure.diagnostics[0].message
    line = " ".join(text.encode("ascii", "replace").decode().split())[:400]
    try:
        _agree(communicator, {"digest": "", "scheme": "", "error": line}, deadline)
    except ZencError:
        return  # this rank's own error says more


def _agree(communicator: Communicator, pledge: dict[str, str], deadline: float) -> None:
    """Agreement takes its turn among the calls of the group, so that it meets the others' agreement."""

    def agreement(_: Work) -> torch.Tensor:
        communicator.agree(pledge, deadline)
        return torch.empty(0)

    communicator.worker.run(agreement)
