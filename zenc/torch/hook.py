"""The DDP communication hook: sparse buckets go through the scheme, dense ones keep DDP's own all-reduce.

DDP gives every sparse parameter a bucket of its own, whose buffer is one sparse COO tensor, mostly uncoalesced, and
takes the future of one sparse tensor of the same shape back. With a hook DDP does not divide by the number of ranks;
the hook does. Buckets are rebuilt after the first step, so what is kept by parameter is kept by name.
"""

# No "from __future__ import annotations" here: DDP compares the annotations of a hook with its own classes.
from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from zenc.errors import ZencError
from zenc.runtime.collective import Collective
from zenc.runtime.stats import CallStats
from zenc.runtime.work import Work


class ZencState:
    """What the hook needs, and what it found.

    Args:
        collective: the loaded scheme.
        process_group: DDP's own group, for dense buckets; default: all ranks.
        names: parameter -> name, for ``stats``; parameters without one are called by their bucket.
    """

    def __init__(
        self,
        collective: Collective,
        process_group: dist.ProcessGroup | None = None,
        names: Mapping[torch.Tensor, str] | None = None,
    ) -> None:
        self.collective = collective
        self.process_group = process_group
        self.error: BaseException | None = None
        """What ended the last synchronisation, if it failed; DDP shows it as the text of a RuntimeError."""
        self._names = {id(parameter): name for parameter, name in (names or {}).items()}
        self._counted: dict[str, CallStats | None] = {}

    @property
    def stats(self) -> dict[str, dict[str, Any]]:
        """Parameter name -> ``Collective.stats`` of its last synchronisation."""
        return {name: counted.to_json() if counted else {} for name, counted in self._counted.copy().items()}

    def name_of(self, bucket: GradBucket) -> str:
        """The name of the parameter of a sparse bucket."""
        parameters = bucket.parameters()
        return self._names.get(id(parameters[0]), f"bucket {bucket.index()}") if parameters else ""

    def record(self, name: str, work: Work) -> None:
        """Keep what a finished call counted, or why it failed."""
        try:
            work.wait()
        except BaseException as error:
            self.error = error
        else:
            self._counted[name] = work.counted


def zenc_hook(state: ZencState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the gradients of ``bucket`` over the ranks: ``ddp.register_comm_hook(state, zenc_hook)``.

    1. A dense bucket: DDP's own all-reduce.
    2. A sparse one: queue the scheme's ``all_reduce`` with op "mean", and return its future, so that the backward
       pass goes on meanwhile. All ranks see the buckets in one order, and so run the calls in one order.
    """
    buffer = bucket.buffer()
    if not buffer.is_sparse:
        return allreduce_hook(cast(dist.ProcessGroup, state.process_group), bucket)  # takes None for all ranks
    name = state.name_of(bucket)
    try:
        work = state.collective.all_reduce(buffer, "mean", async_op=True)
    except ZencError as error:
        state.error = error
        raise
    work.then(lambda ended: state.record(name, ended))
    return work.get_future()
