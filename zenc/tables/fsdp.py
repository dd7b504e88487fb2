"""FSDP2: gradients of ``fully_shard`` by a scheme, through ``set_custom_reduce_scatter`` and ``set_all_reduce_hook``.

FSDP2 lays the gradients of a module, dense, one after another in a flat tensor, and rank r gets range r of its sum. So
the scheme must cut by ranges, and rank r own part r. The gain is where most rows are zero: in tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.distributed as dist

from zenc.api import compile_text
from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import as_tensor, writable
from zenc.runtime.call.planned_calls import OpLike
from zenc.tables.by_group import ByGroup
from zenc.torch.attach import Scheme

BY_RANGES = (
    'scheme by_ranges { "Ranges go directly to the ranks that own them, and sums back." communication: point_to_point '
    "aggregation: incremental partition: parallelism balance: imbalanced push: auto pull: auto }"
)
"""The scheme that serves where no scheme is named."""


@cache
def by_ranges() -> Artifact:
    """Return ``BY_RANGES``, compiled."""
    return compile_text(BY_RANGES)


class FsdpReduceScatter:
    """A function for ``module.set_custom_reduce_scatter``: only units that are not all zero travel.

        fully_shard(model.table)
        model.table.set_custom_reduce_scatter(zenc.FsdpReduceScatter(width=768))

    Args:
        scheme: as ``zenc.load`` takes it; one in which rank r owns range r of a tensor. Default: point to point.
        width: columns of the table, where the module is a table alone: its rows are the units then. Default: single
            elements are.
        deadline: seconds that any single wait may take; see ``zenc.load``.
    """

    def __init__(self, scheme: Scheme | None = None, width: int = 1, deadline: float | None = None) -> None:
        options = {"adapter": type(self).__name__, "width": str(width)}
        self._of_groups, self.width = ByGroup(by_ranges() if scheme is None else scheme, deadline, options), width
        self._known: set[tuple[dist.ProcessGroup, int]] = set()

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return memory of shape ``size`` for a call, which is not kept."""
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: OpLike,
        async_op: bool = False,
    ) -> None:
        """Write range r of the sum of ``input_tensor`` [ranks * n] to ``output_tensor`` [n] of rank r, and wait for it.

        Raises TensorError: ``other-shards`` where the scheme gives ranks other ranges, or ``width`` is not that of
        all rows; ``unknown-operation`` for another than sum and mean, as ``set_gradient_divide_factor`` asks for.
        """
        input_tensor, output_tensor = as_tensor(input_tensor), writable(output_tensor)
        collective = self._of_groups.on(group)
        if (group, input_tensor.numel()) not in self._known:
            self._ensure_ranges(collective, input_tensor.numel())
            self._known.add((group, input_tensor.numel()))
        sums = collective.reduce_scatter(input_tensor.reshape(-1, self.width), op, rows=True)
        rows = output_tensor.zero_().view(-1, self.width)
        rows[sums.indices()[0] - collective.rank * len(rows)] = sums.values()

    def _ensure_ranges(self, collective: Collective, elements: int) -> None:
        units, rest = divmod(elements, self.width)
        per_rank, uneven = divmod(units, collective.size)
        mine = torch.arange(units, dtype=torch.int64, device="cpu") // max(1, per_rank) == collective.rank
        if rest or uneven or not torch.equal(collective.owned((units, self.width)), mine):
            name = collective.artifact.plan.scheme
            message = f"'{name}' on rows of {self.width} does not give rank {collective.rank} what FSDP does"
            help = "leave out scheme=, or name one with 'balance: imbalanced'; width= is that of all rows of the module"
            raise TensorError(Diagnostic("other-shards", message, help=help))


class FsdpAllReduceHook:
    """A hook for ``module.set_all_reduce_hook``: reduces a gradient's shard over ``group``, the replicas, in place.

    Args:
        scheme: as ``zenc.load`` takes it; also one that loses something, with a hook of its own for each module.
        group: the ranks that hold the same shard.
        op: "mean" or "sum".
        name: the name by which its state is kept; needed of schemes with ``feedback``.
        deadline: seconds that any single wait may take; see ``zenc.load``.
    """

    def __init__(
        self,
        scheme: Scheme,
        group: dist.ProcessGroup | None = None,
        op: OpLike = "mean",
        name: str = "",
        deadline: float | None = None,
    ) -> None:
        options = {"adapter": type(self).__name__, "op": str(op), "name": name}
        self.collective = ByGroup(scheme, deadline, options).on(group)
        self._op: OpLike = op
        self.name = name

    def __call__(self, reduce_output: torch.Tensor) -> None:
        """Reduce ``reduce_output`` [n]; raises as ``Collective.all_reduce`` does."""
        self.collective.all_reduce(reduce_output, self._op, name=self.name)
