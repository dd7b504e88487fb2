"""MergeComp's groups on the same traces: what two groups gain, how soon they are found, and what more would."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.strategies.traces import RATIOS, models, published, trace
from zenc.strategy.merging import search_fusion, search_groups
from zenc.strategy.simulation.replay import Operations, replay
from zenc.strategy.simulation.step import VALUE_BYTES, StepTensor, TrainingStep
from zenc.strategy.simulation.timeline import Resource

RANKS, RATE, LATENCY = 8, 10e9, 20e-6
"""The gathering of compressed tensors by 8 GPUs: their number, bytes a second of a link, and its latency."""
CONSTANT = 1 << 20
"""Values up to which encoding takes the same; then linear. The papers say so of 4 MB (Cupcake, MLSys 2023)."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """The gathering of a tensor. ``decodes``: one, or one a message that comes; ``beside``: the backward pass."""

    decodes: int = 1
    beside: bool = True

    def operations(self, tensor: StepTensor, name: str) -> Operations:
        """Return the operations on ``tensor``: encode, gather, and decode all that came."""
        encode, decode = (1e-3 * ms for ms in published()["mergecomp"]["encode_decode_ms"][name])
        times = max(1.0, tensor.numel / CONSTANT)
        bytes = (RANKS - 1) * VALUE_BYTES * tensor.numel * RATIOS[name]
        return [
            (Resource.STREAM if self.beside else Resource.BACKWARD, encode * times),
            (Resource.ACROSS, (RANKS - 1) * LATENCY + bytes / RATE),
            (Resource.HOST, self.decodes * decode * times),
        ]

    def reduction(self, tensor: StepTensor) -> Operations:
        bytes = 2 * (RANKS - 1) / RANKS * VALUE_BYTES * tensor.numel
        return [(Resource.ACROSS, 2 * (RANKS - 1) * LATENCY + bytes / RATE)]

    def overhead(self, step: TrainingStep, name: str) -> float:
        rows = (self.operations(tensor, name) for tensor in step.tensors)
        return sum(seconds for row in rows for resource, seconds in row if resource is not Resource.ACROSS)

    def dense(self, step: TrainingStep) -> float:
        return step.forward + replay(step, [self.reduction(tensor) for tensor in step.tensors]).seconds


def seconds_of(step: TrainingStep, name: str, by: Gathering = Gathering()) -> Callable[[tuple[int, ...]], float]:
    """Return a function for the seconds of a step with groups that end at given tensors."""

    def seconds(ends: tuple[int, ...]) -> float:
        merged = step.merged(ends)
        return step.forward + replay(merged, [by.operations(tensor, name) for tensor in merged.tensors]).seconds

    return seconds


def compared() -> list[dict[str, Any]]:
    """Return published numbers beside the rule's, and beside two more readings, each with one addition to the last."""
    readings = {
        "as everywhere": Gathering(),
        "each message decoded": Gathering(RANKS - 1),
        "and no encoding beside the backward pass": Gathering(RANKS - 1, beside=False),
    }
    return [row for name, by in readings.items() for row in _compared(name, by)]


def _compared(reading: str, by: Gathering) -> Iterator[dict[str, Any]]:
    said = published()["mergecomp"]
    small, large = trace("ResNet50"), trace("ResNet101")
    sent = sum(seconds for tensor in small.tensors for _, seconds in by.reduction(tensor))
    yield {"reading": reading, "of": "ms to sum ResNet50", "computed": 1e3 * sent, "published": said["uncompressed_ms"]}
    for name, ms in said["overhead_ms"].items():
        about = f"ms to compress ResNet50 by tensor, {name}"
        yield {"reading": reading, "of": about, "computed": 1e3 * by.overhead(small, name), "published": ms}
    seconds = seconds_of(large, "dgc", by)
    best, count = search_groups(len(large.tensors), seconds, least_gain=0.0).seconds, len(large.tensors)
    over = {
        "over_dense": by.dense(large) / best,
        "over_by_tensor": seconds(tuple(range(1, count))) / best,
        "over_even_split": seconds((count // 2,)) / best,
        "scaling": large.computing / best,
    }
    for name, value in over.items():
        words = f"ResNet101, dgc: {name.replace('_', ' ')}"
        yield {"reading": reading, "of": words, "computed": value, "published": said[name]}


def rows() -> list[dict[str, Any]]:
    """Return all models: one group, a group a tensor, the even split, the searches; milliseconds."""
    return [row(model, name) for model in models() for name in published()["mergecomp"]["encode_decode_ms"]]


def row(model: str, name: str) -> dict[str, Any]:
    step = trace(model)
    count, seconds = len(step.tensors), seconds_of(step, name)
    two, more = search_groups(count, seconds, least_gain=0.0), search_groups(count, seconds, 4, least_gain=0.0)
    fusion = search_fusion(step, seconds)
    return {
        "model": model,
        "compressor": name,
        "computing": 1e3 * step.computing,
        "one group": 1e3 * seconds(()),
        "a group a tensor": 1e3 * seconds(tuple(range(1, count))),
        "even split": 1e3 * seconds((count // 2,)),
        "two groups": 1e3 * two.seconds,
        "asked": two.asked,
        "best of every cut": 1e3 * min(map(seconds, [(), *((cut,) for cut in range(1, count))])),
        "up to four": 1e3 * more.seconds,
        "fusion": 1e3 * fusion.seconds,
        "buffers": len(fusion.ends) + 1,
    }
