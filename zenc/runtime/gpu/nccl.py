"""NCCL's communicators of a group of ranks: one for each GPU, shared by all schemes that are loaded there.

Each has buffers of its own on the GPU, and kernels of two could wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from zenc.errors import SynchronisationError
from zenc.log import notice
from zenc.runtime.gpu.library import CallLibrary
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.communicator import Communicator

ORDERED = ("CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_LAUNCH_ORDER_IMPLICIT")
"""Variables that, where they are 1, have kernels of one communicator wait for those of another one."""


@dataclass(slots=True)
class NcclGroup:
    """A communicator on ``gpu``, made by ``library``: any unit of call sequences, which all know its layout."""

    gpu: str
    library: CallLibrary
    handle: int

    def close(self) -> None:
        """As ``OnGpu.close``."""
        handle, self.handle = self.handle, 0
        if handle:
            self.library.close_communicator(handle)


def nccl_group(group: Communicator, gpu: str, library: CallLibrary, deadline: float) -> int:
    """The handle of the communicator on this rank's ``gpu``; made where a rank has none yet, by all ranks together.

    Raises SynchronisationError: ``group-not-made``, and those of ``GroupAgreement.all``.
    """
    return group.worker.within(lambda: _known_or_made(group, gpu, library, deadline))


def cautions(environment: Mapping[str, str]) -> list[str]:
    """Warnings about variables under which calls and DDP's own messages may wait for each other."""
    return [
        f"{name}=1: a call that goes on beside DDP's all-reduces, as those of attach do, may wait for them, and they "
        "for it, on different ranks in a different order; unset it, or have nothing else in flight"
        for name in ORDERED
        if environment.get(name) == "1"
    ]


def _known_or_made(group: Communicator, gpu: str, library: CallLibrary, deadline: float) -> int:
    known = [made for made in group.nccl if made.gpu == gpu]
    agreement = GroupAgreement(group, deadline)
    if agreement.all(bool(known)):
        return known[-1].handle
    try:
        name = library.unique_id() if group.size > 1 and group.rank == 0 else b""
    except SynchronisationError as error:
        agreement.tell(error)
        raise
    name = agreement.broadcast(name)
    for caution in cautions(os.environ) if group.size > 1 and group.rank == 0 else ():
        notice(caution)
    made = NcclGroup(gpu, library, library.open_communicator(name, group.size, group.rank, deadline))
    group.nccl.append(made)
    return made.handle
