"""States of sharded optimizers: those of one rank's rows, or whole, as the unsharded optimizer has them.

whole   = state: {number: {name: [rows, ...] or a number}}   param_groups
sharded = zenc_rows: 1   the same of m rows   rows: {number: ids [m]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from zenc.common.versioned import ROWS
from zenc.common.wording import count
from zenc.errors import CostError, Diagnostic
from zenc.runtime.call.collective import Collective
from zenc.runtime.lossy.saved_state import ensure_held
from zenc.tables.owned_rows import OwnedRows, Piece, copied, of_rows


def sharded_state(tables: Sequence[OwnedRows], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the states of the rows [m, ...] that this rank owns."""
    return {
        **ROWS.head,
        "state": {n: copied({**table.once, **table.states}) for n, table in enumerate(tables)},
        "rows": {n: table.ids.clone() for n, table in enumerate(tables)},
        "param_groups": groups,
    }


def whole_state(tables: Sequence[OwnedRows], groups: list[dict[str, Any]], collective: Collective) -> dict[str, Any]:
    """Return the states of all rows [rows, ...], gathered from their owners; all ranks together."""
    return {
        "state": {
            n: {**copied(table.once), **{key: _gathered(table, each, collective) for key, each in table.states.items()}}
            for n, table in enumerate(tables)
        },
        "param_groups": groups,
    }


def _gathered(table: OwnedRows, state: torch.Tensor, collective: Collective) -> torch.Tensor:
    """Return ``state`` [m, ...] of all owners, [rows, ...]; numbers travel in rows as wide as the table's.

    Rows of one element may have other owners than longer ones.
    """
    rows, width, numbers = len(table.parameter), max(1, table.parameter[:1].numel()), math.prod(state.shape[1:])
    wide = state.reshape(len(state), numbers)
    wide = wide if wide.shape[1] == width else wide.expand(-1, min(width, 2))
    found = collective.all_gather(of_rows(table.ids, wide.contiguous(), (rows, wide.shape[1])))
    return found.values()[:, :numbers].reshape(rows, *state.shape[1:]).clone()


def read_pieces(
    state: Mapping[str, Any] | Sequence[Mapping[str, Any]], heights: Sequence[int], groups: int
) -> tuple[list[list[Piece]], list[Mapping[str, Any]]]:
    """Return the saved rows [k, ...] of each table of ``heights`` rows, and its groups.

    Raises CostError (``bad-state``, ``other-version``).
    """
    ensure_held(state)
    given = [state] if isinstance(state, Mapping) else list(state)
    for each in (each for each in given if isinstance(each, Mapping)):
        ROWS.ensure(each, "this state")
    try:
        pieces = [[_piece(each, number, height) for each in given] for number, height in enumerate(heights)]
        found = list(given[0]["param_groups"])
        fits = len(found) == groups and all(len(set(map(int, each["state"]))) == len(heights) for each in given)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise _unfit(f"{type(error).__name__}: {error}", heights, groups) from error
    if not fits:
        raise _unfit("it has another number of them", heights, groups)
    return pieces, found


def _unfit(why: str, heights: Sequence[int], groups: int) -> CostError:
    message = f"this is no state of an optimizer of {count(len(heights), 'table')} in {count(groups, 'group')}: {why}"
    return CostError(Diagnostic("bad-state", message, help="give what state_dict() has returned, of the same tables"))


def _piece(saved: Mapping[str, Any], number: int, height: int) -> Piece:
    """Return a piece; raises ValueError for row numbers outside of ``height`` rows, or not ascending."""
    states = {**saved["state"].get(number, {}), **saved["state"].get(str(number), {})}
    given = saved["rows"] if "rows" in saved else {number: torch.arange(height, dtype=torch.int64, device="cpu")}
    rows = given[number if number in given else str(number)]  # torch.distributed.checkpoint makes texts of numbers
    within = not len(rows) or (int(rows[0]) >= 0 and int(rows[-1]) < height)
    if rows.dtype != torch.int64 or rows.dim() != 1 or not within or not bool((rows.diff() > 0).all()):
        raise ValueError(f"its rows are no ascending numbers below {height:,}")
    return rows, states
