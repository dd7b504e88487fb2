"""Traces of training steps, as Espresso's authors measured them, and the links and compressors that they used.

    espresso_models.json    tensors in the order of the backward pass, elements, microseconds since the one before

The reading, fixed before anything was computed: a gradient is ready its gap after the one before, as the file has it
(``raw``). The authors' public simulator takes gaps modulo 1,000 us; that is computed beside it, as ``modulo``. The
forward pass takes half of the backward pass. Links run at the rates that the paper names.
"""

from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.pages import json_of
from benchmarks.strategies.option_table import Compressor, Machines
from zenc.language.files import load_file, load_text, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.strategy.simulation.step import StepTensor, TrainingStep

HERE = Path(__file__).parent
READINGS = ("raw", "modulo")
FORWARD = 0.5
"""The length of the forward pass in those of the backward pass."""

LINKS = {
    "NVLink": Machines(8, 8, latency=20e-6, inside=150e9, across=12.5e9, host=2.5e9),
    "PCIe": Machines(8, 8, latency=20e-6, inside=12.5e9, across=3.125e9, host=2.5e9),
}
"""Links of 8 machines of 8 GPUs: 1.2 Tbit/s a GPU and 100 Gbit/s a machine; 100 and 25. 20 us a step are a guess."""

RATIOS = {"random": 0.02, "dgc": 0.02, "efsignsgd": 1 / 32, "onebit": 1 / 32}
"""The share of the bytes that remain: one value in a hundred with its index; a bit a value."""


@cache
def data() -> dict[str, Any]:
    return json_of(HERE / "espresso_models.json")


@cache
def published() -> dict[str, Any]:
    return json_of(HERE / "published.json")


def trace(model: str, reading: str = "raw") -> TrainingStep:
    """Return the step of ``model``; raises KeyError for one that is not there."""
    of = data()["models"][model]
    gaps = [gap % 1000 if reading == "modulo" else gap for gap in of["gaps_us"]]
    tensors = tuple(StepTensor(name, numel, gap * 1e-6) for (name, numel), gap in zip(of["tensors"], gaps, strict=True))
    return TrainingStep(model, tensors, FORWARD * sum(gaps) * 1e-6)


def models() -> tuple[str, ...]:
    return tuple(data()["models"])


def compressor(name: str) -> Compressor:
    """Return the compressor as the authors' simulator has it: the same up to 2^20 values, then linear."""
    both, decode = (row[2] * 1e-6 for row in data()["compression_microseconds"][name][:2])
    return Compressor(name, RATIOS[name], both - decode, decode)


def plan_of(name: str, ranks: int, **params: str) -> Plan:
    return lower(resolve(load_file(locate(name)), name, params, {})[0], ranks)


def plan_of_text(text: str, ranks: int) -> Plan:
    return lower(resolve(load_text(text, "asked.zen"))[0], ranks)
