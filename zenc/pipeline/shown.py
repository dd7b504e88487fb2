"""Arrows that end elsewhere than in an artifact: in the cost of a call, in programs to show, and in plans.

Schemes --lower, explain--> Explanation        Schemes --lower, program--> ShownProgram*
Syntax --resolve, lower--> Plan to draw        Syntax --resolve--> Planner* to simulate
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from zenc.analysis.contribution import packed_tensor
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.explanation import Explanation
from zenc.analysis.explanation import explain as explain_plan
from zenc.analysis.fit import ensure_room
from zenc.analysis.placement import Placement, reach
from zenc.analysis.scaling import symbolic
from zenc.gradients.index_sets import Gradients, drawn, ensure, read_gradients, unsound_tensor
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec, source_of
from zenc.language.files import SourceFiles, load_file, locate
from zenc.pipeline import placed, resolve
from zenc.pipeline.request import USUAL_RANKS, Request, Schemes
from zenc.plan.ir import Plan
from zenc.plan.requirements import ensure_all
from zenc.rank_ir.lower import lower as lower_rank
from zenc.rank_ir.text import ShownProgram
from zenc.scheme.model import Scheme
from zenc.topology.model import Topology
from zenc.verify.proof import Proof, verify_all
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.partitioning import part_sizes

if TYPE_CHECKING:
    from zenc.simulator.sweep import Planner

LARGEST_PROVED = 64
"""Most ranks for which a simulated scheme is proved for the very number."""


def explanation(
    schemes: Schemes, request: Request, rank: int, spec: GradientSpec, indices: str | os.PathLike[str] | None
) -> Explanation:
    """Return the cost of a call over gradients drawn by ``spec``, or recorded in ``indices``.

    Of a choice the cheapest.
    """
    recorded = None if indices is None else _recorded(indices, request.ranks)
    source = source_of(spec)
    size = request.size or (USUAL_RANKS if schemes.choice else None)
    if recorded:
        source, size = f"recorded in {indices}", recorded.size
        spec = GradientSpec(recorded.units, recorded.width, recorded.dtype, recorded.density)

    on_gpus = request.topology is not None and request.topology.has_gpus

    def explained(scheme: Scheme) -> Explanation:
        unpinned = request.plan_of(scheme)
        request.ensure_fits(request.plan_of(scheme, request.ranks))
        gradients = recorded or drawn(spec, size or request.usual_size(unpinned))
        exact = explain_plan(request.plan_of(scheme, gradients.size), rank, gradients, spec, source, on_gpus)
        placement = _placed(exact.plan, request.topology, spec) if request.topology else None
        return replace(exact, general=symbolic(unpinned, gradients.size, spec.density), placement=placement)

    candidates = {name: explained(scheme) for name, scheme in schemes.able(size).schemes.items()}
    cheapest = min(candidates.values(), key=lambda candidate: candidate.busiest_bytes)
    return replace(cheapest, choice=schemes.choice.name, candidates=candidates) if schemes.choice else cheapest


def _placed(plan: Plan, topology: Topology, spec: GradientSpec) -> Placement:
    """Return the placement of ``plan`` with gradients like ``spec``, and its share of the bound if it is lossless."""
    placement = placed(plan, topology, spec)
    if plan.is_lossy:
        return placement
    dense = replace(spec, density=1.0, zipf=None, overlap=None)
    bytes = dense.units * dense.width * DTYPE_BYTES[dense.dtype]
    return replace(placement, reach=reach(placed(plan, topology, dense), bytes))


def _recorded(indices: str | os.PathLike[str], ranks: int | None) -> Gradients:
    gradients = read_gradients(indices)
    ensure([(ranks not in (None, gradients.size), f"{indices} is of {gradients.size} ranks, not of {ranks}")])
    return gradients


def shown_programs(
    schemes: Schemes, request: Request, rank: int, tensor: tuple[int, int, str]
) -> dict[str, ShownProgram]:
    """Return the program of ``rank`` of each scheme, by name, for a ``tensor`` of (units, width, dtype)."""
    dtype = tensor[2]
    shown = {}
    for name, scheme in schemes.able(USUAL_RANKS if request.size is None else request.size).schemes.items():
        size = request.usual_size(request.plan_of(scheme))
        ensure([(rank >= size, f"there is no rank {rank} among {size}"), *unsound_tensor(*tensor)])
        plan = request.plan_of(scheme, size)
        if request.topology is not None:
            placed(plan, request.topology, GradientSpec(*tensor, DEFAULT_GRADIENT.density))
        units, width = packed_tensor(plan, *tensor[:2])
        slots = part_sizes(plan.mapping, units, width, plan.parts_of_mapping(size))
        shown[name] = ShownProgram(name, lower_rank(plan, size, rank), tuple(slots), width, DTYPE_BYTES[dtype])
    return shown


def pinned(syntax: SourceFiles, request: Request, gradient: GradientSpec) -> tuple[Plan, int]:
    """Return the plan of one scheme, and its number of ranks.

    Raises SchemeError for one that chooses, and as ``check`` does for one that a topology can't run.
    """
    (scheme,) = resolve(syntax, request, alone=True).schemes.values()
    size = request.usual_size(request.plan_of(scheme))
    plan = request.plan_of(scheme, size)
    if request.topology:
        request.ensure_fits(plan)
        ensure_room(plan, request.topology, [expected_bytes(plan, size, gradient).profile])
    return plan, size


def planners_of(paths: Iterable[str | os.PathLike[str]], request: Request) -> dict[str, Planner]:
    """Return ``planners`` of the schemes in ``paths``, by name; equal names are told apart by path."""
    by_path = [
        (path, name, planner)
        for path in paths
        for name, planner in planners(resolve(load_file(locate(path)), request, alone=True), request).items()
    ]
    names = [name for _, name, _ in by_path]
    return {name if names.count(name) == 1 else f"{path}: {name}": planner for path, name, planner in by_path}


def planners(schemes: Schemes, request: Request) -> dict[str, Planner]:
    """Return for each scheme, by name, a function from a number of ranks to its proved plan, which fits the topology.

    Plans of up to LARGEST_PROVED ranks are proved for these, larger ones for few of them, all by the same moves.
    """
    return {name: _planner(request.plan_of(scheme), request) for name, scheme in schemes.schemes.items()}


def _planner(unpinned: Plan, request: Request) -> Planner:
    proofs_for_few: list[Proof] = []

    def plan(size: int) -> Plan:
        request.ensure_fits(unpinned)
        ensure_all(unpinned, size)
        if size <= LARGEST_PROVED:
            verify_all(unpinned, (size,))
        elif not proofs_for_few:
            proofs_for_few.extend(verify_all(unpinned))
        return unpinned

    return plan
