"""Espresso's peers on the same traces: BytePS-Compress, HiTopKComm and HiPress, as options of the decision tree.

    BytePS-Compress   every tensor; sums inside, then both steps across machines, compressed by the host
    HiTopKComm        every tensor; a reduce-scatter inside, an all-gather across of what the GPU has compressed
    HiPress           the tensors for which it is quicker alone; by the GPU, across machines alone

Their own implementations are more than that; these readings were fixed before anything was computed with them.
"""

from typing import Any

from benchmarks.strategies.decision_tree import Action, Among, Option, Tree
from benchmarks.strategies.espresso import chosen, quickest_alone, table
from benchmarks.strategies.option_search import alike, replayed
from benchmarks.strategies.option_table import OptionTable, TaskCosts
from benchmarks.strategies.traces import LINKS, READINGS, compressor, published, trace
from zenc.strategy.simulation.step import TrainingStep

Path = tuple[tuple[Action, Among | None, str], ...]
"""Tasks of an option: the action, among whom, by which device."""

PUSH: Path = ((Action.SCATTER, Among.INSIDE_PUSH, ""),)
PULL: Path = ((Action.COLLECT, Among.INSIDE_PULL, ""),)


def two_steps(device: str) -> Path:
    """Return the path across machines, compressed by ``device``: a scatter, the sum, and a gather compressed again."""
    encode, decode = (Action.COMPRESS, None, device), (Action.DECOMPRESS, None, device)
    scatter, collect = (Action.SCATTER, Among.ACROSS, ""), (Action.COLLECT, Among.ACROSS, "")
    return (*PUSH, encode, scatter, decode, encode, collect, decode, *PULL)


GATHERED: Path = (
    *PUSH, (Action.COMPRESS, None, "gpu"), (Action.ALL_GATHER, Among.ACROSS, ""), (Action.DECOMPRESS, None, "gpu"),
    *PULL,
)  # fmt: skip
PATHS: dict[str, tuple[Path, ...]] = {
    "BytePS-Compress": (two_steps("cpu"),),
    "HiTopKComm": (GATHERED,),
    "HiPress": (two_steps("gpu"), GATHERED),
}
SELECTIVE = ("HiPress",)
"""The peers that leave a tensor as it is where that is quicker for it alone."""
EVERY = tuple(Tree().options())


def options_of(paths: tuple[Path, ...]) -> list[Option]:
    return [option for option in EVERY if tuple((task.action, task.level, task.device) for task in option) in paths]


def of_peer(step: TrainingStep, costs: TaskCosts, name: str) -> float:
    """Return seconds of ``step`` with the forward pass, as the peer of that ``name`` synchronises it."""
    plain = [option for option in EVERY if all(task.action is not Action.COMPRESS for task in option)]
    of = OptionTable([*plain, *options_of(PATHS[name])], costs)
    options = quickest_alone(step, of) if name in SELECTIVE else alike(step, of, compressed=True)
    return step.forward + replayed(step, of, options).seconds


def rows() -> list[dict[str, Any]]:
    """Return Figures 12 and 13: the step of each peer over that with the strategy, in both readings of the traces."""
    return [row for case in published()["espresso"]["cases"] for row in rows_of(case["model"])]


def rows_of(model: str) -> list[dict[str, Any]]:
    case = next(case for case in published()["espresso"]["cases"] if case["model"] == model)
    return [row for reading in READINGS for row in _rows(case, reading)]


def _rows(case: dict[str, Any], reading: str) -> list[dict[str, Any]]:
    step, by = trace(case["model"], reading), compressor(case["compressor"])
    machines = LINKS[case["links"]]
    best = step.forward + chosen(step, table(machines, by)).seconds
    about = {name: case[name] for name in ("model", "compressor", "links")} | {"reading": reading}
    return [
        {
            **about,
            "peer": name,
            "over": of_peer(step, TaskCosts(machines, by), name) / best,
            "published": case.get("over", {}).get(name),
        }
        for name in PATHS
    ]


def scaling() -> list[dict[str, Any]]:
    """Return Table 1: computation over the step if every tensor is compressed by the GPU, or by the host."""
    cases = [case for case in published()["espresso"]["cases"] if "scaling_gpu" in case]
    return [_scaling(case, reading, device) for case in cases for reading in READINGS for device in ("gpu", "cpu")]


def _scaling(case: dict[str, Any], reading: str, device: str) -> dict[str, Any]:
    step = trace(case["model"], reading)
    of = OptionTable(options_of((two_steps(device),)), TaskCosts(LINKS[case["links"]], compressor(case["compressor"])))
    seconds = step.forward + replayed(step, of, of.options * len(step.tensors)).seconds
    return {
        "model": case["model"], "reading": reading, "device": device, "scaling": step.computing / seconds,
        "published": case[f"scaling_{device}"],
    }  # fmt: skip
