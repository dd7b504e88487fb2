"""Contributions: the packed part of a gradient, and the rest after later selections, without knowing its values.

    of units the selected share of each rank's units, at random: their count is known, not the units
    linear       another tensor, shorter and dense; of matrices of low rank the mean of both factors
    transform    coefficients, of which as many are selected as of units: all of them are there before
    later the selected share of all slots of a sum, or all its units, if these are fewer

An ``above`` takes a share that only the values decide: here it takes all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import numpy.typing as npt

from zenc.gradients.index_sets import Gradients, gradients
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.plan.expressions import Ints
from zenc.plan.ir import VALUE_KINDS, Phase, PhaseKind, Plan
from zenc.scheme.compression import Above, Heavy, Linear, LowRank, Selection, Sketch, TopOfParts, matrix_of
from zenc.scheme.compression_words import selection_text, words_of
from zenc.wire.codes import most_encoded_bytes
from zenc.wire.partitioning import cut

Floats = npt.NDArray[np.float64]


def packed_tensor(plan: Plan, units: int, width: int) -> tuple[int, int]:
    """Return units and width of the packed tensor: the gradient's, or those that linear selections make of them."""
    select = plan.of(PhaseKind.PUSH)[0].select
    if plan.transform:
        return units * width, 1
    if not any(isinstance(one, Linear) for one in select):
        return units, width
    return linear_values(select, units, width), 1


def contributed(plan: Plan, of: Profile) -> Profile:
    """Return the profile of the packed gradient where ``of`` is that of the ranks' gradients."""
    select = plan.of(PhaseKind.PUSH)[0].select
    if any(isinstance(one, Linear) for one in select):
        return uniform(1.0, *packed_tensor(plan, of.units, of.width), of.dtype, name=of.name)
    share = _share(select)
    if plan.transform:
        of = uniform(1.0, *packed_tensor(plan, of.units, of.width), of.dtype, name=of.name)
    if share is None or share >= of.density:
        return of
    kept = share / of.density
    return replace(of, ranges=tuple(tuple((p * kept, part) for p, part in classes) for classes in of.ranges))


def contributed_sets(plan: Plan, of: Gradients) -> Gradients:
    """Return the packed part of drawn or recorded gradients: the selected number of each rank's units, at random."""
    select = plan.of(PhaseKind.PUSH)[0].select
    is_linear = any(isinstance(one, Linear) for one in select)
    if plan.transform or is_linear:
        values, width = packed_tensor(plan, of.units, of.width)
        of = gradients(values, width, of.dtype, [np.arange(values)] * of.size)
    if _share(select) is None or (is_linear and not plan.transform):
        return of
    counts, groups = _counts(plan, of, select)
    held, room = [], np.empty(max(map(len, of.held)))  # touched once: new memory takes longer than to draw
    for rank, ids in enumerate(of.held):
        keys = np.random.default_rng([0, rank]).random(out=room[: len(ids)])
        if len(counts) == 1:
            held.append(ids[_least(keys, int(counts[0]))])
            continue
        order = np.lexsort((keys, groups[ids]))
        of_group = groups[ids[order]]
        starts = np.searchsorted(of_group, of_group)
        held.append(np.sort(ids[order[np.arange(len(ids)) - starts < counts[of_group]]]))
    return gradients(of.units, of.width, of.dtype, held)


def _least(keys: Floats, count: int) -> Ints:
    """Return the places of the ``count`` least ``keys``, ascending, or of all if there are fewer.

    Keys are even in 0 to 1, so only those below a likely bound are looked at.
    """
    likely = np.flatnonzero(keys < 1.25 * count / max(1, len(keys)) + 0.01)
    if len(likely) < count:
        likely = np.arange(len(keys))
    return np.sort(likely[np.argpartition(keys[likely], count)[:count]]) if count < len(likely) else likely


def _counts(plan: Plan, of: Gradients, select: Sequence[Selection]) -> tuple[Ints, Ints]:
    """Return the selected units of each group of units, and the group of each unit: parts, or all units together."""
    if len(select) > 1 or not isinstance(select[0], TopOfParts) or plan.announces:
        count = min(of.units, sum(_count(one, of.units) or 0 for one in select))
        return np.array([count]), np.zeros(of.units, dtype=np.int64)
    by = cut(plan.mapping, of.units, of.width, plan.parts(of.size))
    return np.array([_count(select[0], size) or 0 for size in by.sizes.tolist()]), np.asarray(by.part, dtype=np.int64)


def linear_values(select: Sequence[Selection], units: int, width: int) -> int:
    """Return the values of the dense tensor that linear selections make of ``units`` of ``width`` values."""
    return sum(_linear_values(one, units, width) for one in select)


def _linear_values(one: Selection, units: int, width: int) -> int:
    if isinstance(one, Heavy):
        return (_count(one, units) or 0) * width + _linear_values(one.sketch, units, width)
    if isinstance(one, Sketch):
        return one.rows * max(1, round(one.share * units * width / one.rows))
    if isinstance(one, LowRank):  # of two calls, in the mean
        return -(-one.r * (units + width) // 2) if matrix_of((units, width), one.r) else units * width
    return (_count(one, units) or 0) * width


def selected_later(plan: Plan, phase: Phase, size: int, contributors: int, density: Floats) -> Floats:
    """Return the density [n] of pieces of ``phase`` with ``contributors``, given that without selections of sums.

    Pieces of a sum that had selections are taken as independent.
    """
    for group, share in _later_shares(plan, phase, size, contributors):
        groups = max(1.0, contributors / group)
        one = np.minimum(1 - (1 - density) ** (1 / groups), share)
        density = np.asarray(np.minimum(density, 1 - (1 - one) ** groups))
    return density


def _later_shares(plan: Plan, phase: Phase, size: int, contributors: int) -> Iterator[tuple[int, float]]:
    """Yield the selections of sums up to ``phase``, in order: contributors of the sum, and the share."""
    members, phases = plan.counts(size), plan.of(*VALUE_KINDS)
    for each in phases[: phases.index(phase) + 1]:
        inside, share = prod(members[: each.tier.depth]), _share(each.select)
        if share is not None and each != phases[0]:
            yield size if each.kind is PhaseKind.PULL else inside, share
        if (share := _share(each.merge)) is not None:
            merged = min(contributors, inside * members[each.tier.depth])
            if merged > inside:
                yield merged, share


def guesses(plan: Plan) -> list[str]:
    """Return the estimated parts of the bytes of ``plan``, in words; empty where bytes follow from gradients."""
    found = []
    merges = [phase.merge for phase in plan.of(PhaseKind.PUSH)]
    first, *later = [phase.select for phase in plan.of(*VALUE_KINDS)]
    if any(not isinstance(one, Linear) for one in first):
        found.append("which units are selected is drawn at random")
    if any(isinstance(one, LowRank) for one in first):
        found.append("a tensor is a matrix of its units, and bytes are the mean of two calls, each with one factor")
    if any(isinstance(one, Above) for select in (first, *merges, *later) for one in select):
        found.append("all units count as above the threshold")
    if any(later):
        found.append("what is selected of sums is taken as independent")
        if plan.feedback is not None:
            found.append(
                "bytes are those of the first call: later owners select again what they kept, and less travels"
            )
    if any(phase.code is not None and getattr(phase.code, "coder", "none") != "none" for phase in plan.phases):
        found.append("what the range coder saves is left out")
    return found


def weights(plan: Plan) -> list[str]:
    """Return the meaning of volumes with selections or codes, in words: of the density d, and of float32 values."""
    found = []
    for phase in plan.of(*VALUE_KINDS):
        if phase.select:
            found.append(f"{phase.name}: d is the density of {selection_text(phase.select)}")
        if phase.merge:
            found.append(f"{phase.name}: sums have the density of {selection_text(phase.merge)}")
        if phase.code is not None:
            share = most_encoded_bytes(phase.code, _MANY) / (4 * _MANY)
            found.append(f"{phase.name}: values as {words_of(phase.code)} weigh {share:.3g} times what float32 does")
    return found


_MANY = 1 << 20
"""A number of values at which the scales of blocks count in full."""


def _share(select: Sequence[Selection]) -> float | None:
    """Return selected units for each unit of the tensor; None where all are selected, or the values decide."""
    shares = [getattr(one, "density", None) for one in select]
    return None if not select or None in shares else min(1.0, sum(share for share in shares if share is not None))


def _count(selection: Selection, units: int) -> int | None:
    """Return the units that ``selection`` takes, at least one; None where the values decide."""
    density = getattr(selection, "density", None)
    return None if density is None else min(units, max(1, round(density * units)))
