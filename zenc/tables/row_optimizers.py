"""Optimizers that touch only the rows that a sparse gradient has, in the manner of ``torch.optim.SparseAdam``.

    LazyAdamW      = exp_avg, exp_avg_sq [rows, width]    step
    RowwiseAdagrad = sum [rows]                           step

Every operation is one of torch's own on all touched rows, and none mixes rows: the number of rows updated together does
not change a bit of any of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch.optim.optimizer import Optimizer

from zenc.errors import Diagnostic, TensorError


class RowOptimizer(Optimizer, ABC):
    """An optimizer of parameters [rows, ...] with sparse gradients: ``update`` has its rule for the touched rows."""

    @abstractmethod
    def row_states(self, group: dict[str, Any], rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the states of ``rows`` [k, ...] that were never touched: one number, or one row, for each."""

    @abstractmethod
    def update(
        self, group: dict[str, Any], step: int, rows: torch.Tensor, grads: torch.Tensor, states: dict[str, torch.Tensor]
    ) -> None:
        """Update ``rows`` [k, ...] and their ``states`` in place, by ``grads`` [k, ...], in step ``step``, from 1."""

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the rows that the gradients have; raises TensorError (``needs-sparse``) for a dense one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_of(group, parameter)
        return loss

    def _step_of(self, group: dict[str, Any], parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        ensure_sparse(parameter.grad)
        gradient, state = parameter.grad.coalesce(), self.state[parameter]
        if not state:
            state["step"] = 0
            state.update(self.row_states(group, parameter))
        state["step"] += 1
        at, grads = gradient.indices()[0], gradient.values()
        names = [name for name in state if name != "step"]
        rows, touched = parameter[at], {name: state[name][at] for name in names}
        self.update(group, state["step"], rows, -grads if group["maximize"] else grads, touched)
        parameter[at] = rows
        for name in names:
            state[name][at] = touched[name]


def ensure_sparse(gradient: torch.Tensor) -> None:
    """Raise TensorError (``needs-sparse``) for a dense ``gradient`` of any shape, or one cut finer than by rows."""
    if not gradient.is_sparse or gradient.sparse_dim() != 1:
        message = f"a table is updated by rows of a sparse gradient, and this one is {gradient.layout}"
        help = "nn.Embedding(..., sparse=True) gives such; leave other parameters to an optimizer of torch"
        raise TensorError(Diagnostic("needs-sparse", message, help=help))


class LazyAdamW(RowOptimizer):
    """AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2) of the touched rows: moments and decay of others wait.

    Steps are counted for the whole table, as ``torch.optim.SparseAdam`` does: where every row is touched in every step
    it is ``torch.optim.AdamW``, but for rounding.

    Args:
        params: parameters [rows, ...] with sparse gradients, or groups of them.
        lr: learning rate.
        betas: decay of the averages of gradients, and of their squares.
        eps: added to the denominator.
        weight_decay: share of a touched row that each step takes away, times ``lr``.
        maximize: go up instead of down.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)

    def row_states(self, group: dict[str, Any], rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return moments, zeros [k, ...]."""
        return {name: torch.zeros_like(rows, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}

    def update(
        self, group: dict[str, Any], step: int, rows: torch.Tensor, grads: torch.Tensor, states: dict[str, torch.Tensor]
    ) -> None:
        """Update as ``RowOptimizer.update`` does, rows [k, ...]."""
        lr, (beta1, beta2) = float(group["lr"]), group["betas"]
        rows.mul_(1 - lr * group["weight_decay"])
        states["exp_avg"].mul_(beta1).add_(grads.mul(1 - beta1))
        states["exp_avg_sq"].mul_(beta2).add_(grads.square().mul_(1 - beta2))
        scale = math.sqrt(1 - beta2**step)
        rate = lr / (1 - beta1**step)
        denominator = states["exp_avg_sq"].sqrt().div_(scale).add_(group["eps"])
        rows.sub_(states["exp_avg"].div(denominator).mul_(rate))


class RowwiseAdagrad(RowOptimizer):
    """Adagrad (Duchi et al., JMLR 2011) with one sum a row, of the means of its squared gradients, as FBGEMM has it.

    Args:
        params: parameters [rows, ...] with sparse gradients, or groups of them.
        lr: learning rate.
        eps: added to the denominator.
        initial_accumulator_value: the sum of a row that was never touched.
        maximize: go up instead of down.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        eps: float = 1e-10,
        initial_accumulator_value: float = 0.0,
        maximize: bool = False,
    ) -> None:
        initial = {"initial_accumulator_value": initial_accumulator_value}
        super().__init__(params, {"lr": lr, "eps": eps, "maximize": maximize, **initial})

    def row_states(self, group: dict[str, Any], rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return sums [k]."""
        return {"sum": rows.new_full((len(rows),), group["initial_accumulator_value"], requires_grad=False)}

    def update(
        self, group: dict[str, Any], step: int, rows: torch.Tensor, grads: torch.Tensor, states: dict[str, torch.Tensor]
    ) -> None:
        """Update as ``RowOptimizer.update`` does, rows [k, ...]."""
        states["sum"].add_(grads.square().flatten(1).mean(dim=1))
        denominator = states["sum"].sqrt().add_(group["eps"]).view(-1, *[1] * (rows.dim() - 1))
        rows.sub_(grads.div(denominator).mul_(float(group["lr"])))
