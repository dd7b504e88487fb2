"""The heaviest packing of columns: a linear program by the revised simplex method, with the prices of its rows.

    maximize rate,  where  rate <= the weight of each root's columns together,  and the loads of all columns <= 1

Right sides are shaken by less than a part in a million, which keeps the method from going round in circles (Charnes
1952). A result has at most as many columns as there are roots and links.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NEAR = 1e-9
_SHAKEN = 1e-7
_MOST_PIVOTS = 20_000
_MORE, _NEAR_FULL = 128, 1e-5
"""Links that are looked at more, and by how much these are too full."""


def heaviest(roots: Sequence[int], loads: Floats, of: int) -> tuple[float, Floats, Floats]:
    """Return the rate, the weight of each column, and the prices of the links.

    ``roots`` [columns] is the root of each column, of ``of`` ones, ``loads`` [links, columns] the share of each link
    that it takes. Of many links those are looked at that are full, which are few.
    """
    few = np.unique(np.r_[loads.argmax(axis=0), np.argsort(-loads.sum(axis=1))[:_MORE]])
    while True:
        rate, weights, some = _heaviest(roots, loads[few], of)
        over = loads @ weights - 1
        worst = np.argsort(-over)[:_MORE]
        fresh = np.setdiff1d(worst[over[worst] > _NEAR_FULL], few)
        if not len(fresh):
            prices = np.zeros(len(loads))
            prices[few] = some
            return rate, weights, prices
        few = np.r_[few, fresh]


def _heaviest(roots: Sequence[int], loads: Floats, of: int) -> tuple[float, Floats, Floats]:
    links, columns = loads.shape
    rows = of + links
    table = np.zeros((rows, 1 + columns + rows))
    table[:of, 0] = 1.0
    table[np.asarray(roots), 1 + np.arange(columns)] = -1.0
    table[of:, 1 : 1 + columns] = loads
    table[:, 1 + columns :] = np.eye(rows)
    right = np.r_[np.zeros(of), np.ones(links)] + _SHAKEN * np.random.default_rng(0).random(rows)
    basis = 1 + columns + np.arange(rows)
    value = np.zeros(table.shape[1])
    value[0] = 1.0  # what is left to gain by each column
    inverse, held = np.eye(rows), right.copy()
    for _ in range(_MOST_PIVOTS):
        prices = (basis == 0).astype(np.float64) @ inverse
        gain = value - prices @ table
        enters = int(gain.argmax())
        if gain[enters] <= _NEAR:
            break
        column = inverse @ table[:, enters]
        ratio = np.where(column > _NEAR, held / np.where(column > _NEAR, column, 1.0), np.inf)
        leaves = int(ratio.argmin())
        step = ratio[leaves]
        held = np.maximum(held - step * column, 0.0)
        held[leaves] = step
        row = inverse[leaves] / column[leaves]
        inverse -= np.outer(column, row)
        inverse[leaves] = row
        basis[leaves] = enters
    found = np.zeros(table.shape[1])
    found[basis] = held
    prices = np.maximum((basis == 0).astype(np.float64) @ inverse, 0.0)
    return float(found[0]), found[1 : 1 + columns], prices[of:]
