"""Espresso's evaluation: the ratios, the time that a choice takes, and what each crippled dimension loses."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmarks.strategies.decision_tree import Action, Among, Option, Tree
from benchmarks.strategies.option_search import ChosenOptions, alike, offload, replayed, seconds_of, select
from benchmarks.strategies.option_table import Compressor, Machines, OptionTable, TaskCosts, compresses
from benchmarks.strategies.traces import LINKS, READINGS, compressor, models, published, trace
from zenc.strategy.merging import search_groups
from zenc.strategy.simulation.step import TrainingStep

ON_GPU = Tree(("gpu",), ("gpu",))
COMPRESSORS = ("random", "dgc", "efsignsgd")
SLOW = {
    "1 Gbit/s": Machines(8, 1, latency=50e-6, inside=12.5e9, across=0.125e9, host=2.5e9),
    "10 Gbit/s": Machines(8, 8, latency=50e-6, inside=12.5e9, across=1.25e9, host=2.5e9),
}
TOPOLOGIES = {**LINKS, **SLOW}


def table(machines: Machines, by: Compressor, tree: Tree = ON_GPU) -> OptionTable:
    return OptionTable(tree.options(), TaskCosts(machines, by))


def chosen(step: TrainingStep, of: OptionTable) -> ChosenOptions:
    """Return the best by event simulation of: the algorithms' options, nothing compressed, everything compressed."""
    found = offload(step, of, select(step, of))
    others = [found.options, select(step, of, passes=1).options]
    others += [alike(step, of, compressed) for compressed in (False, True)]
    best = min(others, key=lambda options: replayed(step, of, options).seconds)
    return replace(found, options=best, seconds=replayed(step, of, best).seconds)


def rows() -> list[dict[str, Any]]:
    """Return each published case in both readings: scaling without compression, gain over it, gap to the bound."""
    return [row for case in published()["espresso"]["cases"] for row in rows_of(case["model"])]


def rows_of(model: str) -> list[dict[str, Any]]:
    cases = [case for case in published()["espresso"]["cases"] if case["model"] == model]
    return [_row(case, reading) for case in cases for reading in READINGS]


def _row(case: dict[str, Any], reading: str) -> dict[str, Any]:
    step, by = trace(case["model"], reading), compressor(case["compressor"])
    of = table(LINKS[case["links"]], by)
    free = table(LINKS[case["links"]], replace(by, encode=0.0, decode=0.0))
    plain = step.forward + replayed(step, of, alike(step, of, compressed=False)).seconds
    best, bound = step.forward + chosen(step, of).seconds, step.forward + chosen(step, free).seconds
    return {
        "model": case["model"],
        "compressor": case["compressor"],
        "links": case["links"],
        "reading": reading,
        "scaling": step.computing / plain,
        "scaling published": case.get("scaling"),
        "over dense": plain / best,
        "over dense published": case.get("over_dense"),
        "from bound": best / bound - 1,
        "from bound published": case.get("from_bound"),
    }


def times(repeats: int = 5) -> list[dict[str, Any]]:
    """Return milliseconds of the choice on one core: the least of some repeats.

    With the tables of options made anew.
    """
    return [_times(case, repeats) for case in published()["espresso"]["cases"]]


def _times(case: dict[str, Any], repeats: int) -> dict[str, Any]:
    step, by = trace(case["model"]), compressor(case["compressor"])
    options, costs = list(ON_GPU.options()), TaskCosts(LINKS[case["links"]], by)
    sizes = [tensor.numel for tensor in step.tensors]

    def prepared() -> OptionTable:
        of = OptionTable(options, costs)
        of.prepare(sizes)
        return of

    of = prepared()
    found = select(step, of)
    compressed, one = sum(map(compresses, found.options)), _least(lambda: seconds_of(step, of, found.options), repeats)
    return {
        "model": case["model"],
        "tensors": len(step.tensors),
        "tensors published": case["tensors"],
        "tables ms": _least(prepared, repeats),
        "selection ms": _least(lambda: select(step, of), repeats),
        "selection published": case["selection_ms"],
        "compressed": compressed,
        "compressed published": case["offload_tensors"],
        "offload ms": _least(lambda: offload(step, of, found), repeats),
        "offload published": case["offload_ms"],
        "brute force s": 1e-3 * one * 2**compressed,
        "brute force published": case["brute_force_s"],
    }


def _least(what: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        before = perf_counter()
        what()
        taken.append(perf_counter() - before)
    return 1e3 * min(taken)


def across_only(action: Action) -> Callable[[Option], bool]:
    """Return a predicate: whether all compressed moves go across machines by one kind of collective."""
    wanted = {Action.ALL_GATHER: {Action.ALL_GATHER}, Action.SCATTER: {Action.SCATTER, Action.COLLECT}}[action]

    def fits(option: Option) -> bool:
        across = [task for task in option if task.level in (Among.ACROSS, Among.FLAT) and task.held.compressed]
        return all(task.action in wanted for task in across)

    return fits


def in_two_steps(option: Option) -> bool:
    """Return whether all compression is of scattered moves, inside machines and across: the paper's fixed choice."""
    scattered = {task.level for task in option if task.action is Action.SCATTER and task.held.compressed}
    return not compresses(option) or {Among.INSIDE_PUSH, Among.ACROSS} <= scattered


CRIPPLED: dict[str, Callable[[Option], bool]] = {
    "on the GPU alone": lambda option: all(task.device != "cpu" for task in option),
    "on the host alone": lambda option: all(task.device != "gpu" for task in option),
    "across by all-gather alone": across_only(Action.ALL_GATHER),
    "across by all-to-all alone": across_only(Action.SCATTER),
    "all-to-all inside and across": in_two_steps,
    "all ranks at once alone": lambda option: all(task.level in (None, Among.FLAT) for task in option),
}


UNSEARCHED = ("all compressed", "each as if alone", "one pass")
"""The rows of the crippled table that no search made, or a shorter one."""


def crippled() -> list[dict[str, Any]]:
    """Return the published cases with one dimension fixed: seconds of the timeline over those of the whole search."""
    found = []
    for case in published()["espresso"]["cases"]:
        step, by = trace(case["model"]), compressor(case["compressor"])
        costs, every = TaskCosts(LINKS[case["links"]], by), list(Tree().options())
        best = step.forward + select(step, OptionTable(every, costs)).seconds
        row: dict[str, Any] = {"model": case["model"], "links": case["links"], "compressor": case["compressor"]}
        for name, kept in CRIPPLED.items():
            of = OptionTable(filter(kept, every), costs)
            row[name] = (step.forward + select(step, of).seconds) / best
        row |= {name: (step.forward + seconds) / best for name, seconds in _unsearched(step, OptionTable(every, costs))}
        found.append(row)
    return found


def _unsearched(step: TrainingStep, of: OptionTable) -> Iterator[tuple[str, float]]:
    yield "all compressed", seconds_of(step, of, alike(step, of, compressed=True))
    yield "each as if alone", seconds_of(step, of, quickest_alone(step, of))
    yield "one pass", select(step, of, passes=1).seconds


def quickest_alone(step: TrainingStep, of: OptionTable) -> tuple[Option, ...]:
    """Return for each tensor the option that is quickest if there were no others: a myopic choice."""
    of.prepare([tensor.numel for tensor in step.tensors])
    found = [of.of_size(tensor.numel) for tensor in step.tensors]
    return tuple(each.options[int(each.matrices.max(axis=(1, 2)).argmin())] for each in found)


def never_worse() -> list[dict[str, Any]]:
    """Return all models, links and compressors: the choice over the better of no and full compression, simulated."""
    found = []
    for model in models():
        step = trace(model)
        for links, machines in TOPOLOGIES.items():
            for name in COMPRESSORS:
                of = table(machines, compressor(name))
                row = {"model": model, "links": links, "compressor": name}
                found.append({**row, **_compared(step, of)})
    return found


def _compared(step: TrainingStep, of: OptionTable) -> dict[str, float]:
    plain, every = (replayed(step, of, alike(step, of, compressed)).seconds for compressed in (False, True))
    two = search_groups(len(step.tensors), lambda ends: _merged(step, of, ends), least_gain=0.0)
    best = min(chosen(step, of).seconds, two.seconds)
    return {
        name: step.forward + seconds
        for name, seconds in (("best", best), ("plain", plain), ("all", every), ("two groups", two.seconds))
    }


def _merged(step: TrainingStep, of: OptionTable, ends: tuple[int, ...]) -> float:
    merged = step.merged(ends)
    return replayed(merged, of, alike(merged, of, compressed=True)).seconds
