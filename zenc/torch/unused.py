"""Say early, and by name, that a sparse parameter took no part in a forward pass.

DDP can't reduce such a parameter: it waits for a gradient that never comes, or fails with "Expected sparse gradient
to be defined" (pytorch/pytorch#80496). Which parameters took part is clear when the forward pass ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from zenc.errors import Diagnostic, TensorError


def watch_unused(ddp_model: DistributedDataParallel, sparse: Mapping[str, list[nn.Module]]) -> None:
    """Raise TensorError (``unused-parameter``) from the forward pass that leaves out one of ``sparse``."""
    used: set[int] = set()
    for modules in sparse.values():
        for module in modules:
            module.register_forward_pre_hook(lambda called, _: used.add(id(called)))

    def check(_: nn.Module, __: Any, output: Any) -> None:
        idle = {name: modules for name, modules in sparse.items() if not used & {id(m) for m in modules}}
        used.clear()
        if idle and torch.is_grad_enabled() and ddp_model.require_backward_grad_sync:
            _demand_in_graph(idle, output)

    ddp_model.register_forward_hook(check)


def _demand_in_graph(idle: Mapping[str, list[nn.Module]], output: Any) -> None:
    """A module that was not called may still have lent its weight to a function: the graph knows."""
    roots = [leaf.grad_fn for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.grad_fn]
    if not roots:
        return  # nothing to differentiate, or an output that can't be looked into
    reached = _leaves(roots)
    for name, modules in idle.items():
        weights = {id(p) for module in modules for p in module.parameters(recurse=False)}
        if not weights & reached:
            raise TensorError(_unused(name))


def _leaves(roots: list[Any]) -> set[int]:
    """The ids of the parameters that the graph under ``roots`` leads to."""
    seen: set[Any] = set()
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting.extend(following for following, _ in node.next_functions)
    return found


def _unused(name: str) -> Diagnostic:
    message = f"the sparse parameter '{name}' took no part in this forward pass, so DDP would wait for its gradient"
    owner = name.rpartition(".")[0] or name
    help = (
        f"look up no row of it, which gives an empty gradient: "
        f"out = out + {owner}(torch.empty(0, 1, dtype=torch.long)).sum(); or freeze it with requires_grad_(False)"
    )
    return Diagnostic("unused-parameter", message, help=help)
