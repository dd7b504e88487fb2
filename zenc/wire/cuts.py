"""Cuts of a tensor by encoded sizes: the same on all ranks, since they are made of numbers that all ranks have.

    ends[p] = the unit behind part p, ascending; the last one is the number of units

The encoded bytes of a part are taken to lie evenly in it. A stretch counts LEAST_SHARE of the mean at least: otherwise
a stretch with next to nothing left would become a single part, and its owner would hold nearly all of the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

LEAST_SHARE = 16
"""Reciprocal of the least share of the mean bytes of a unit: no part has more than 17 times the units of a mean one."""

Ends: TypeAlias = tuple[int, ...]


def even_ends(units: int, parts: int) -> Ends:
    """Return the ends of ``parts`` parts of equal lengths but for the last ones."""
    length = -(-units // parts)
    return tuple([min(units, (part + 1) * length) for part in range(parts)])


def ends_by_size(ends: Ends, sizes: Sequence[int]) -> Ends:
    """Return the ends that cut a tensor in parts of equally many bytes; the last parts took ``sizes`` [parts] bytes.

    ``ends`` are those of the last parts. The arithmetic is in integers, so that every processor has the same result.
    """
    units, parts, total = ends[-1], len(ends), sum(sizes)
    if not total or not units:
        return even_ends(units, parts)
    spans = list(pairwise((0, *ends)))
    weights = [
        max(LEAST_SHARE * units * size, total * (end - first)) if end > first else 0
        for (first, end), size in zip(spans, sizes, strict=True)
    ]
    behind = list(accumulate(weights))
    found, part = [], 0
    for number in range(1, parts):
        wanted = number * behind[-1]  # of which there are as many as parts
        while behind[part] * parts < wanted:
            part += 1
        first, end = spans[part]
        into = wanted - (behind[part] - weights[part]) * parts
        found.append(first + into * (end - first) // (weights[part] * parts))
    return (*found, units)
