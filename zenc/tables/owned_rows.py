"""Owned rows of a table: those that this rank updates, with their optimizer states, and nothing of others.

    OwnedRows = parameter [rows, ...]  ids [m], ascending  states: name -> [m] or [m, ...]  once: name -> number

A step takes the touched rows and their states out, lets the optimizer of torch update them as if they were a parameter
of their own, and puts the states back. So the rule is torch's, whatever its version, and no state has more than m rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from zenc.errors import CostError, Diagnostic, TensorError
from zenc.runtime.call.layout import coalesced
from zenc.tables.row_optimizers import RowOptimizer

Piece = tuple[torch.Tensor, Mapping[str, Any]]
"""Row numbers [k] and their saved values: states [k, ...], and numbers of the whole table."""


def untouched(inner: Optimizer, group: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """Return the states of ``rows`` [k, ...] that ``inner`` has never updated, and its numbers of the whole table.

    Raises TensorError (``unsupported-optimizer``) for one whose states are not known to be those of its rows alone.
    """
    match inner:
        case RowOptimizer():
            return {"step": 0, **inner.row_states(group, rows)}
        case torch.optim.SparseAdam():
            return {"step": 0, "exp_avg": torch.zeros_like(rows), "exp_avg_sq": torch.zeros_like(rows)}
        case torch.optim.Adagrad():
            sums = torch.full_like(rows, group["initial_accumulator_value"])
            return {"step": torch.tensor(0.0, dtype=torch.float32, device="cpu"), "sum": sums}
    message = f"{type(inner).__name__} is no optimizer whose states are known to be of each row alone"
    help = "torch.optim.SparseAdam, torch.optim.Adagrad, zenc.LazyAdamW or zenc.RowwiseAdagrad"
    raise TensorError(Diagnostic("unsupported-optimizer", message, help=help))


@dataclass(frozen=True, slots=True)
class UndoneUpdate:
    """Rows ``at`` [k] of the owned ones, their ``states`` [k, ...] and the numbers ``once`` of the table."""

    at: torch.Tensor
    states: dict[str, torch.Tensor]
    once: dict[str, Any]


@dataclass(slots=True)
class OwnedRows:
    """The owned rows of a table; ``counted`` [m]: whether no lower rank owns the row too, so that each counts once."""

    parameter: nn.Parameter
    ids: torch.Tensor
    counted: torch.Tensor
    states: dict[str, torch.Tensor] = field(default_factory=dict)
    once: dict[str, Any] = field(default_factory=dict)
    before: UndoneUpdate | None = None
    """The states before the last update."""

    def begin(self, inner: Optimizer, group: dict[str, Any]) -> None:
        """Set the states of rows that were never touched."""
        with torch.no_grad():
            rows = self.parameter.new_empty(len(self.ids), *self.parameter.shape[1:], requires_grad=False)
            found = untouched(inner, group, rows)
        self.states = {name: state for name, state in found.items() if _is_of_rows(state)}
        self.once = {name: state for name, state in found.items() if not _is_of_rows(state)}

    def squares(self, sums: torch.Tensor) -> float:
        """Return the sum of squares of owned gradients ``sums``, sparse, of the rows that this rank counts."""
        at = torch.searchsorted(self.ids, sums.indices()[0])
        return float(sums.values()[self.counted[at]].double().square().sum())

    def update(self, inner: Optimizer, number: int, sums: torch.Tensor, all_rows: bool) -> torch.Tensor:
        """Let ``inner`` update the rows of ``sums``, a sparse gradient of owned rows, by its group ``number``.

        Returns the updated rows as a sparse tensor of the table's shape and dtype, or all owned ones; the table itself
        is left as it is.
        """
        chosen, at = sums.indices()[0], torch.searchsorted(self.ids, sums.indices()[0])
        rows = nn.Parameter(self.parameter.detach()[chosen])
        numbers = torch.arange(len(rows), device=rows.device, dtype=torch.int64)
        rows.grad = of_rows(numbers, sums.values(), rows.shape)
        self.before = UndoneUpdate(at, {name: state[at] for name, state in self.states.items()}, copied(self.once))
        group, states = inner.param_groups[number], {name: state[at] for name, state in self.states.items()}
        group["params"], inner.state[rows] = [rows], {**self.once, **states}
        for other in inner.param_groups:
            other["params"] = [rows] if other is group else []
        inner.step()
        after = inner.state.pop(rows)
        for name, state in self.states.items():
            state[at] = after[name]
        self.once = {name: after[name] for name in self.once}
        return self._sent(chosen, rows.detach(), all_rows)

    def undo(self) -> None:
        """Go back to the states before the last update, if that was not undone yet."""
        if self.before is not None:
            for name, state in self.before.states.items():
                self.states[name][self.before.at] = state
            self.once, self.before = self.before.once, None

    def _sent(self, chosen: torch.Tensor, rows: torch.Tensor, all_rows: bool) -> torch.Tensor:
        if all_rows:
            everything = self.parameter.detach()[self.ids]
            everything[torch.searchsorted(self.ids, chosen)] = rows
            chosen, rows = self.ids, everything
        return of_rows(chosen, rows, self.parameter.shape)

    def rows_at(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows ``ids`` [k], ascending, as they are in the table: a sparse tensor of its shape and dtype."""
        return of_rows(ids, self.parameter.detach()[ids], self.parameter.shape)

    def write(self, gathered: torch.Tensor) -> None:
        """Put the rows that owners have sent into the table."""
        self.parameter.detach()[gathered.indices()[0]] = gathered.values()

    def filled(self, pieces: Sequence[Piece]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return ``states`` and ``once`` from ``pieces``, in which every owned row must be, once or more.

        Raises CostError (``bad-state``).
        """
        missing = torch.ones_like(self.ids, dtype=torch.bool)
        states = {name: torch.empty_like(state) for name, state in self.states.items()}
        for rows, saved in pieces:
            missing &= ~self._placed(states, rows, saved)
        if missing.any():
            message = f"the state lacks {int(missing.sum())} of the {len(missing)} rows that this rank owns"
            raise _bad(message, "give the states of all ranks that saved one, as a list, or a whole one")
        return states, self._once_of(pieces[0][1])

    def take(self, rows: torch.Tensor, saved: Mapping[str, Any]) -> None:
        """Take the values ``saved`` of those of ``rows`` [k], which ascend, that are owned.

        Raises CostError (``bad-state``).
        """
        self._placed(self.states, rows, saved)
        self.once = self._once_of(saved)

    def _placed(self, states: dict[str, torch.Tensor], rows: torch.Tensor, saved: Mapping[str, Any]) -> torch.Tensor:
        """Set ``states`` of owned rows in ``rows`` to the values ``saved``; return which rows these are, [m] bool."""
        known = rows.to(self.ids.device)
        here = torch.isin(self.ids, known)
        from_ = torch.searchsorted(known, self.ids[here])
        for name, state in states.items():
            found = _checked(saved, name, rows, state)
            state[here] = found[from_.to(found.device)].to(state)
        return here

    def _once_of(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _like(old, saved.get(name)) for name, old in self.once.items()}


def of_rows(ids: torch.Tensor, rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a coalesced sparse tensor of ``shape`` with ``rows`` [k, ...] at ``ids`` [k], which ascend."""
    return coalesced(ids[None], rows, tuple(shape))


def _is_of_rows(state: Any) -> bool:
    return isinstance(state, torch.Tensor) and state.dim() > 0


def copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of tensors of any shapes, and of numbers: optimizers of torch may count in place."""
    return {name: each.clone() if isinstance(each, torch.Tensor) else each for name, each in state.items()}


def _checked(saved: Mapping[str, Any], name: str, rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = saved.get(name)
    if not isinstance(found, torch.Tensor) or found.shape != (len(rows), *like.shape[1:]):
        raise _bad(f"the state has no '{name}' of {len(rows)} rows of {tuple(like.shape[1:])}", "is it of this table?")
    return found


def _like(old: Any, found: Any) -> Any:
    """Return a number of the whole table, in the type that the optimizer has it in."""
    if not isinstance(found, int | float | torch.Tensor):
        raise _bad("the state does not say how many steps there were", "is it of this optimizer?")
    return (
        torch.tensor(float(found), dtype=torch.float32, device="cpu")
        if isinstance(old, torch.Tensor)
        else type(old)(found)
    )


def _bad(message: str, help: str) -> CostError:
    return CostError(Diagnostic("bad-state", message, help=help))
