"""Rotations of a cluster: ranks that are alike, and what a move between two of them loads when all of them make it.

Ranks are numbered by places, as in levels; a rotation adds to some of the places, each modulo its count. If ranks look
alike when they are rotated, one tree is enough for all: that of rank 0, rotated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from zenc.topology.model import Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rotation:
    """Ranks as places of ``counts``, outermost first; ``turns`` says which of these are rotated."""

    counts: tuple[int, ...]
    turns: tuple[bool, ...]

    @property
    def order(self) -> int:
        """The number of rotations: the ranks for which one tree stands."""
        return prod(count for count, turns in zip(self.counts, self.turns, strict=True) if turns)

    @cached_property
    def places(self) -> Ints:
        """The places of all ranks, [ranks, levels]."""
        return np.stack(np.unravel_index(np.arange(prod(self.counts)), self.counts), axis=1).astype(np.int64)

    @cached_property
    def images(self) -> Ints:
        """The images of all ranks: [rotations, ranks]."""
        steps = [range(count) if turns else (0,) for count, turns in zip(self.counts, self.turns, strict=True)]
        moved = [(self.places + np.array(step)) % np.array(self.counts) for step in product(*steps)]
        return np.stack([np.ravel_multi_index(tuple(each.T), self.counts) for each in moved]).astype(np.int64)

    @cached_property
    def roots(self) -> list[int]:
        """The lowest rank of each kind that is alike."""
        return sorted(set(self.images.min(axis=0).tolist()))


def rotations(topology: Topology, wide: Floats) -> Iterator[Rotation]:
    """Yield rotations after which all pairs of ranks have routes as ``wide`` as before, most of them first.

    ``wide`` [ranks, ranks] tells pairs apart.
    """
    size = topology.size
    levels = tuple(level.count for level in topology.levels)
    shapes = dict.fromkeys([levels if prod(levels) == size and levels else (size,), (size,), *_grids(size)])
    turned = (Rotation(shape, turns) for shape in shapes for turns in product((True, False), repeat=len(shape)))
    done: set[tuple[int, ...]] = set()
    for rotation in sorted(turned, key=lambda each: (-each.order, len(each.counts))):
        key = tuple(sorted(map(tuple, rotation.images.tolist()))[-1]) if rotation.order > 1 else ()
        if key not in done and _keeps(rotation, wide):
            done.add(key)
            yield rotation


def _grids(size: int) -> Iterator[tuple[int, ...]]:
    yield from ((k, size // k) for k in range(2, size) if size % k == 0)


def _keeps(rotation: Rotation, wide: Floats) -> bool:
    for level, (count, turns) in enumerate(zip(rotation.counts, rotation.turns, strict=True)):
        if turns and count > 1:
            moved = rotation.places.copy()
            moved[:, level] = (moved[:, level] + 1) % count
            image = np.ravel_multi_index(tuple(moved.T), rotation.counts)
            if not np.array_equal(wide[np.ix_(image, image)], wide):
                return False
    return True
