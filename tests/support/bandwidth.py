"""Lower bounds on bytes that schemes send: the rows that ranks hold, and messages of one row, for each rank.

A row that c of n ranks hold takes at least c - 1 messages to be summed, and n - 1 to be everywhere: n + c - 2, and so
the bound B2 on the busiest rank is their sum over all rows, divided by n.
"""

from __future__ import annotations

import numpy as np


def zipf_units(units: int, density: float, exponent: float, seed: int) -> np.ndarray:
    """Draw the distinct units of a batch of tokens by Zipf's law (unit = place in frequency)."""
    rng = np.random.default_rng(seed)
    cumulated = np.cumsum(1.0 / np.arange(1, units + 1) ** exponent)
    cumulated /= cumulated[-1]
    wanted, tokens, found = int(units * density), np.empty(0, np.int64), np.empty(0, np.int64)
    while found.size < wanted:
        tokens = np.concatenate([tokens, np.searchsorted(cumulated, rng.random(wanted))])
        found, first = np.unique(tokens, return_index=True)
    return np.sort(tokens[np.sort(first)][:wanted])


def zipf_holders(
    ranks: int, units: int = 200_000, density: float = 0.02, exponent: float = 1.05, seed: int = 1
) -> np.ndarray:
    """Draw which rank holds which unit: [ranks, units]."""
    held = np.zeros((ranks, units), bool)
    for rank in range(ranks):
        held[rank, zipf_units(units, density, exponent, 1000 * seed + rank)] = True
    return held


def bound(held: np.ndarray) -> float:
    """Return B2, in messages of one row."""
    holders = held.sum(0)
    return float((len(held) + holders[holders > 0] - 2).sum()) / len(held)


def busiest(held: np.ndarray, owners: np.ndarray) -> float:
    """Return the most messages of a rank when the owner of each unit sums it and sends it to all."""
    ranks, present = len(held), held.any(0)
    held, owners = held[:, present], owners[present]
    holders, most = held.sum(0), 0
    for rank in range(ranks):
        own = owners == rank
        sent = (held[rank] & ~own).sum() + (ranks - 1) * own.sum()
        received = (own * (holders - held[rank])).sum() + (~own).sum()
        most = max(most, int(sent), int(received))
    return float(most)
