"""MergeComp's groups on the same traces: what two groups gain, how soon they are found, and what more would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.strategies.traces import RATIOS, models, published, trace
from zenc.strategy.merging import search_fusion, search_groups
from zenc.strategy.replay import Operations, replay
from zenc.strategy.step import VALUE_BYTES, StepTensor, TrainingStep
from zenc.strategy.timeline import Resource

RANKS, RATE, LATENCY = 8, 10e9, 20e-6
"""8 GPUs that gather what each has compressed, at 10 GB/s."""
CONSTANT = 1 << 20
"""Values up to which encoding takes the same; then linear. The papers say so of 4 MB (Cupcake)."""


def operations(tensor: StepTensor, name: str) -> Operations:
    """Encode, gather, decode of all that came."""
    encode, decode = (1e-3 * ms for ms in published()["mergecomp"]["encode_decode_ms"][name])
    times = max(1.0, tensor.numel / CONSTANT)
    bytes = (RANKS - 1) * VALUE_BYTES * tensor.numel * RATIOS[name]
    return [
        (Resource.STREAM, encode * times),
        (Resource.ACROSS, (RANKS - 1) * LATENCY + bytes / RATE),
        (Resource.HOST, decode * times),
    ]


def seconds_of(step: TrainingStep, name: str) -> Callable[[tuple[int, ...]], float]:
    """What the step takes with groups that end there."""

    def seconds(ends: tuple[int, ...]) -> float:
        merged = step.merged(ends)
        return step.forward + replay(merged, [operations(tensor, name) for tensor in merged.tensors]).seconds

    return seconds


def rows() -> list[dict[str, Any]]:
    """All models: one group, a group a tensor, the even split, the searches; milliseconds."""
    return [row(model, name) for model in models() for name in published()["mergecomp"]["encode_decode_ms"]]


def row(model: str, name: str) -> dict[str, Any]:
    """One model by one compressor."""
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
