"""The timeline of a step: operations of tensors on resources, in max-plus algebra.

Each resource serves the operations of tensors in the order of the tensors. Then the moments at which the resources are
free after a tensor are a linear map, in max-plus algebra, of those before it: a matrix [6, 6], of which entry (r, q) is
the time from the moment at which q was free to that at which r is free again, minus infinity where r need not wait.

    Timeline = a tree of products of neighbouring matrices, which finds the effect of another matrix in O(log N)
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Resource(IntEnum):
    """Servers of one operation at a time: the backward pass, a side stream of the GPU, the host, links.

    Links inside a machine are two resources, by the direction of the sum: a push waits for no pull.
    """

    BACKWARD = 0
    STREAM = 1
    HOST = 2
    INSIDE_PUSH = 3
    ACROSS = 4
    INSIDE_PULL = 5


RESOURCES = len(Resource)
NEVER = -np.inf
NO_OPERATION = -1
"""The mark of no further operation in a table of operations."""


def identity(count: int) -> Floats:
    """Return ``count`` matrices of tensors that need nothing, [count, 6, 6]."""
    one = np.full((RESOURCES, RESOURCES), NEVER)
    np.fill_diagonal(one, 0.0)
    return np.repeat(one[None], count, axis=0)


def matrices(resources: Ints, seconds: Floats) -> Floats:
    """Return the matrices [k, 6, 6] of k lists of operations: ``resources`` and ``seconds``, [k, most], in order.

    The first begins when the gradient is ready. Lists that are shorter end in ``NO_OPERATION``.
    """
    made, each = identity(len(resources)), np.arange(len(resources))
    moment = made[:, Resource.BACKWARD].copy()
    for column in range(resources.shape[1]):
        on = resources[:, column]
        served = np.maximum(moment, made[each, on]) + seconds[:, column, None]
        there = on != NO_OPERATION
        moment = np.where(there[:, None], served, moment)
        made[each[there], on[there]] = moment[there]
    return np.asarray(made)


def after_gap(matrix: Floats, gap: Floats | float) -> Floats:
    """Return the matrices [..., 6, 6] of tensors whose gradients are ready ``gap`` [...] s after the one before."""
    made: Floats = matrix.copy()
    made[..., Resource.BACKWARD] += np.asarray(gap)[..., None]
    return made


def product(after: Floats, before: Floats) -> Floats:
    """Return the product [..., 6, 6] of ``before``, and then ``after``."""
    return np.asarray((after[..., :, :, None] + before[..., None, :, :]).max(axis=-2))


class Timeline:
    """The timeline of N tensors, ``of`` their matrices [N, 6, 6]: the seconds of a step, also with another matrix."""

    def __init__(self, of: Floats) -> None:
        self.count = len(of)
        self._leaves = 1 << max(self.count - 1, 0).bit_length()
        self._tree = identity(2 * self._leaves)
        self._tree[self._leaves : self._leaves + self.count] = of
        level = self._leaves
        while level > 1:
            nodes = self._tree[level : 2 * level]
            self._tree[level // 2 : level] = product(nodes[1::2], nodes[::2])
            level //= 2

    @property
    def seconds(self) -> float:
        """The seconds from the begin of the backward pass until every resource is free."""
        return float(self._tree[1].max())

    def without(self, tensor: int) -> tuple[Floats, Floats]:
        """Return when each resource is free before ``tensor``, and the rest to the end from each after it, both [6]."""
        before, rest = np.zeros(RESOURCES), np.zeros(RESOURCES)
        node = self._leaves + tensor
        left: list[int] = []
        right: list[int] = []
        while node > 1:
            (left if node & 1 else right).append(node ^ 1)
            node >>= 1
        for sibling in reversed(left):
            before = (self._tree[sibling] + before).max(axis=1)
        for sibling in reversed(right):
            rest = (self._tree[sibling] + rest[:, None]).max(axis=0)
        return before, rest

    def with_each(self, tensor: int, candidates: Floats) -> Floats:
        """Return seconds of the step with each of ``candidates`` [k, 6, 6] in the place of ``tensor``, [k]."""
        before, rest = self.without(tensor)
        return np.asarray(((candidates + before).max(axis=2) + rest).max(axis=1))

    def change(self, tensor: int, matrix: Floats) -> None:
        """Replace the matrix of ``tensor`` by ``matrix`` [6, 6]."""
        node = self._leaves + tensor
        self._tree[node] = matrix
        while node > 1:
            node >>= 1
            self._tree[node] = (self._tree[2 * node + 1][:, :, None] + self._tree[2 * node][None]).max(axis=1)
