"""The DDP communication hook: sparse buckets go through the scheme, dense ones keep DDP's own all-reduce.

DDP gives every sparse parameter a bucket of its own, whose buffer is one sparse COO tensor, mostly uncoalesced, and
takes the future of one sparse tensor of the same shape back. With a hook DDP does not divide by the number of ranks;
the hook does. Buckets are rebuilt after the first step, so what is kept by parameter is kept by name.
"""

# No "from __future__ import annotations" here: DDP compares the annotations of a hook with its own classes.
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from zenc.errors import ZencError
from zenc.runtime.collective import Collective
from zenc.runtime.profiler import Profiler
from zenc.runtime.stats import CallStats
from zenc.runtime.work import Work
from zenc.torch.dense import reduce_dense


class ZencState:
    """What the hook needs, and what it found.

    Args:
        collective: the loaded scheme.
        process_group: DDP's own group, for dense buckets; default: all ranks.
        names: parameter -> name, for ``stats``; parameters without one are called by their bucket.
        dense: parameters whose gradients are dense, and go through the scheme all the same, row by row.
        profiler: what counts who holds which units, on some steps; of all ranks the same.
    """

    def __init__(
        self,
        collective: Collective,
        process_group: dist.ProcessGroup | None = None,
        names: Mapping[torch.Tensor, str] | None = None,
        dense: Iterable[torch.Tensor] = (),
        profiler: Profiler | None = None,
    ) -> None:
        self.collective = collective
        self.profiler = profiler
        self.process_group = process_group
        self.error: BaseException | None = None
        """What ended the last synchronisation, if it failed; DDP shows it as the text of a RuntimeError."""
        self._names = {id(parameter): name for parameter, name in (names or {}).items()}
        self._dense = frozenset(id(parameter) for parameter in dense)
        self._counted: dict[str, CallStats | None] = {}

    @property
    def stats(self) -> dict[str, dict[str, Any]]:
        """Parameter name -> ``Collective.stats`` of its last synchronisation."""
        return {name: counted.to_json() if counted else {} for name, counted in self._counted.copy().items()}

    def name_of(self, parameter: torch.Tensor, bucket: GradBucket) -> str:
        """What ``stats`` calls a parameter of ``bucket``."""
        return self._names.get(id(parameter), f"bucket {bucket.index()}")

    def average(self, gradient: torch.Tensor, name: str, rows: bool = False) -> torch.futures.Future[torch.Tensor]:
        """Queue the average of ``gradient`` over the ranks by the scheme. What it counts goes to ``stats[name]``."""
        marks = self.profiler.marks(name, gradient) if self.profiler else None
        try:
            work = self.collective.all_reduce(gradient, "mean", async_op=True, rows=rows, name=name)
        except ZencError as error:
            self.error = error
            raise
        work.then(lambda ended: self.record(name, ended))
        if self.profiler and marks:
            self.profiler.count(marks, self.collective.communicator, work)
        return work.get_future()

    def average_dense(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A dense bucket: the asked-for gradients by the scheme, all others by DDP's own all-reduce."""
        ours = self._dense and self._dense.intersection(map(id, bucket.parameters()))
        if not ours:
            return allreduce_hook(cast(dist.ProcessGroup, self.process_group), bucket)  # takes None for all ranks

        def by_scheme(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
            return self.average(gradient, self.name_of(parameter, bucket), rows=True)

        return reduce_dense(bucket, ours, by_scheme, self.process_group)

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

    1. A dense bucket: DDP's own all-reduce, but for the parameters that the state was told of.
    2. A sparse one: queue the scheme's ``all_reduce`` with op "mean", and return its future, so that the backward
       pass goes on meanwhile. All ranks see the buckets in one order, and so run the calls in one order.
    """
    buffer = bucket.buffer()
    if not buffer.is_sparse:
        return state.average_dense(bucket)
    parameters = bucket.parameters()
    return state.average(buffer, state.name_of(parameters[0], bucket) if parameters else "")
