"""Units that a rank owns of a tensor, where owners do not depend on the gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from zenc.plan.ir import Plan
from zenc.rank_ir.halves import owned_parts
from zenc.runtime.call.layout import layout_of, without_units
from zenc.wire.partitioning import cut


def owned_units(plan: Plan, size: int, rank: int, shape: Sequence[int], sparse_dim: int) -> torch.Tensor:
    """Return the units that ``rank`` of ``size`` owns, for ``Collective.owned``: bool [units], on the CPU."""
    layout = layout_of(without_units(shape, sparse_dim), plan.unit)
    parts = cut(plan.mapping, layout.units, layout.width, plan.parts(size)).part
    return torch.isin(
        torch.from_numpy(parts), torch.tensor(owned_parts(plan, size, rank), dtype=torch.int64, device="cpu")
    )
