"""Processor time of the calls that training makes, beside their kernels: two numbers of the lab's calibration.

    OMP_NUM_THREADS=1 python -m benchmarks.predicted_steps --kernels    measures lab/measured/training_calls.json

Hosts train models of one parameter, of few values and of many, by some schemes in turns, and without a sum. What a step
with a sum takes more of a host's processor, its kernels left aside, is ``hook_byte`` for a byte of the gradient, and
``hook_message`` for a message that the host sends. Few hosts send few messages, and many hosts many. Processor time is
not longer where hosts share processors: predictions say how much longer the step is.
"""

import random
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.lab.dense.peers import OneParameter
from benchmarks.lab.launch import launch
from benchmarks.lab.settings import Run
from benchmarks.lab.worker import processor_seconds, work
from benchmarks.pages import ROOT, json_of, save_json
from zenc.simulator.calibration import IN_TRAINING, Calibration

FILE = ROOT / "benchmarks" / "lab" / "measured" / "training_calls.json"
HOSTS = (2, 8)
VALUES = (2_000, 400_000)
SCHEMES = ("benchmarks/lab/schemes/balanced_top.zen", "one_bit", "qsgd")
NOTHING = ""
"""The way that sums nothing."""
ROUNDS, WARM_UP = 25, 5
LIMIT = 240.0
"""Seconds of a run, at most."""

Took = dict[str, float]
"""Way and values -> processor seconds of a host's step, the median of all hosts and rounds."""


@cache
def training_calls() -> dict[str, Any]:
    """Return the measurements, as arguments of a calibration."""
    return {name: json_of(FILE)[name] for name in IN_TRAINING}


def save_training_calls(took: Mapping[int, Took], found: Mapping[str, float]) -> None:
    """Write FILE: what was ``found``, and the processor seconds that it was found from."""
    save_json(FILE, {**found, "took": took})


def measured() -> dict[int, Took]:
    return {hosts: _of_hosts(hosts) for hosts in HOSTS}


def _of_hosts(hosts: int) -> Took:
    run: Run[dict[str, Any]] = Run(hosts, "100mbit", 70_000, "2mb", {}, (), "", ROUNDS, 1, WARM_UP, 1)
    records = launch(run, LIMIT, ("benchmarks.lab.training_calls",))
    return {name: median([second for record in records for second in record[name]]) for name in records[0]}


def fitted(took: Mapping[int, Took], calibration: Calibration) -> dict[str, float]:
    """Return the least squares of the time of steps beside the kernels of ``calibration``; none is below 0."""
    rows, seconds = [], []
    for hosts, found in took.items():
        for scheme in SCHEMES:
            for values in VALUES:
                kernels, messages = kernels_and_messages(scheme, hosts, values, calibration)
                rows.append((4.0 * values, messages))
                seconds.append(found[f"{scheme} {values}"] - found[f"{NOTHING} {values}"] - kernels)
    scale = np.array([1e6, 1.0])
    solved = np.linalg.lstsq(np.array(rows) / scale, np.array(seconds), rcond=None)[0] / scale
    return {name: max(0.0, float(value)) for name, value in zip(IN_TRAINING, solved, strict=True)}


def kernels_and_messages(scheme: str, hosts: int, values: int, calibration: Calibration) -> tuple[float, float]:
    """Return seconds of the kernels of a host that shares no processor, and the messages that it sends."""
    from benchmarks.predicted import plan_of
    from zenc.gradients.profile_generators import uniform
    from zenc.simulator.predict import network, predict_on

    way = network(None, hosts, calibration)
    found = predict_on(plan_of(scheme), uniform(1.0, values, 1, "f32"), way, replace(calibration, cores=None))
    return found.kernels, found.messages / hosts


def processor_seconds_of_steps(given: dict[str, Any]) -> dict[str, list[float]]:
    """Return for this host: way and values -> the processor seconds of each of its steps."""
    ways = {f"{scheme} {values}": _way(scheme, values) for values in VALUES for scheme in (*SCHEMES, NOTHING)}
    order, chance = list(ways), random.Random(given["seed"])
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-given["warm_up"], given["rounds"]):
        chance.shuffle(order)
        for name in order:
            took = _step(ways[name], name.startswith(NOTHING + " "))
            if number >= 0:
                found[name].append(took)
    return found


def _way(scheme: str, values: int) -> DistributedDataParallel:
    made = DistributedDataParallel(OneParameter(1, values), init_sync=False)
    if scheme != NOTHING:
        zenc.attach(made, scheme, dense=True)
    return made


def _step(model: DistributedDataParallel, alone: bool) -> float:
    given = torch.randn(model.module.weight.shape)
    model.zero_grad()
    dist.barrier()
    dist.barrier()
    before = processor_seconds()
    with model.no_sync() if alone else nullcontext():
        torch.autograd.backward(model(given))
    return processor_seconds() - before


if __name__ == "__main__":
    work(processor_seconds_of_steps)
