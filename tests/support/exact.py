"""Predicted bytes against counted ones."""

from typing import Any

import torch

from zenc.analysis.exact_traffic import CallTraffic, weigh
from zenc.gradients.index_sets import Gradients, gradients
from zenc.plan.ir import Plan
from zenc.runtime.call.layout import DTYPE_NAMES, contribution_of, layout_of
from zenc.verify.proof import verify


def gradients_of(inputs: list[torch.Tensor], plan: Plan) -> Gradients:
    """Return the index sets of ranks that sum ``inputs``: each present unit counts, whatever its value."""
    layout = layout_of(inputs[0], plan.unit)
    held = []
    for tensor in inputs:
        given = contribution_of(tensor, layout)
        rows = given.values.reshape(-1, layout.width) if given.unit_ids is None else None
        held.append(given.unit_ids if rows is None else (rows != 0).any(dim=1).nonzero()[:, 0])
    return gradients(layout.units, layout.width, DTYPE_NAMES[layout.dtype], [ids.numpy() for ids in held])


def positive(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same units with values that no sum makes zero, since zeros after a dense phase are left out."""
    if not tensor.is_sparse:
        return torch.where(tensor != 0, tensor.abs() + 1, tensor)
    values = tensor._values().abs() + 1
    return torch.sparse_coo_tensor(tensor._indices(), values, tensor.shape, check_invariants=False)


def predicted(plan: Plan, inputs: list[torch.Tensor]) -> CallTraffic:
    rounds, _ = verify(plan, len(inputs))
    return weigh(plan, rounds, gradients_of(inputs, plan))


def counted(stats: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the part of a call's statistics that is predicted."""
    phase = {key: value for key, value in stats["phases"][kind].items() if key not in ("seconds", "imbalance")}
    for key in ("formats_sent", "formats_received"):
        phase[key] = {name: size for name, size in phase[key].items() if size}
    return phase


def miscounted(plan: Plan, inputs: list[torch.Tensor], stats: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Return ranks and phases whose bytes, messages, formats or units of the sum differ from the prediction."""
    weight, found = predicted(plan, inputs), list[tuple[object, ...]]()
    for rank, of in enumerate(stats):
        pairs = ((kind, counted(of, kind), weight.traffic[kind].of_rank(rank)) for kind in of["phases"])
        found += [(plan.scheme, rank, kind, mine, wanted) for kind, mine, wanted in pairs if mine != wanted]
        if of["units_out"] != weight.counts.sum():
            found.append((plan.scheme, rank, "units", of["units_out"], weight.counts.sum()))
    return found
