"""OSCAR's ratios: bytes of real calls by its coder, and the event simulation of a call with a coder of some speed.

    gradients   of the model of the convergence page, 8 ranks, after STEPS steps of plain training
    messages    of the second of two calls, as ranks send them: values of BITS bits through the range coder
    simulation  the same messages over links of RATE; a coder encodes before a step and decodes after it

The abstract, which is all that is public, has neither bits nor gradients nor the coder's speed: all are varied.
"""

import struct
import threading
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import zenc
from benchmarks.convergence.characters import SIZES
from benchmarks.convergence.runs import RING, Run, text_of
from benchmarks.convergence.trainer import Trainer
from benchmarks.pages import ROOT, json_of
from benchmarks.strategies.traces import plan_of, plan_of_text
from tests.support.local import collectives, run_all
from zenc.gradients.profile_generators import uniform
from zenc.simulator.calibration import Calibration, bandwidth_only
from zenc.simulator.predict import network, predict_on

RANKS, STEPS = 8, 200
BITS = (8, 12, 16)
RANGES = {"equal": "balance: imbalanced", "by bytes": "balance: balanced by encoded"}
RATE = 1.25e9
"""Bytes a second of a link, 10 Gbit/s. Without latencies only the coder's speed beside it matters."""
CODERS = (1, 10, 100)
"""Speeds of a coder over that of a link, in bytes of float32 that it takes or gives."""
CODER = ("encode asc", "decode asc")
"""Names of what a coder does, in a calibration."""
SLOW_RATE = 12.5e6
"""Bytes a second of a slow link, 100 Mbit/s, for which zenc's own coder is meant."""
BYTES_AT = 16
"""The place of the length in a message's header."""

MEASURED = ROOT / "benchmarks" / "lab" / "measured" / "compression.json"
"""Speeds of compression, by name."""

Counts = list[list[int]]
"""Bytes of messages, [steps][ranks that send]."""


def text(bits: int, ranges: str) -> str:
    """Return the scheme: a ring of integers through the coder, over ``ranges``."""
    ring = RING.replace("balance: imbalanced", RANGES[ranges])
    return text_of(ring, "feedback: residual", *(f"{way}: dense as fixed({bits}) by asc" for way in ("push", "pull")))


class Recorder:
    """Messages of a call as ranks send them. A rank sends from one thread, and long messages in several packets."""

    def __init__(self) -> None:
        self.sent: dict[int, list[int]] = defaultdict(list)
        self._rest: dict[int, int] = defaultdict(int)

    def on_send(self, packet: torch.Tensor) -> torch.Tensor:
        """Count ``packet`` [bytes], and pass it on."""
        thread = threading.get_ident()
        if self._rest[thread] <= 0:
            head = bytes(packet[: BYTES_AT + 8].tolist())
            (sender,), (whole,) = struct.unpack_from("<I", head, 12), struct.unpack_from("<Q", head, BYTES_AT)
            self.sent[sender].append(whole)
            self._rest[thread] = whole
        self._rest[thread] -= packet.numel()
        return packet

    def counts(self) -> Counts:
        """Return the counts of all ranks, each of which has sent a message a step."""
        return [list(step) for step in zip(*(self.sent[rank] for rank in sorted(self.sent)), strict=True)]


def gradients() -> tuple[Trainer, list[torch.Tensor]]:
    """Return two steps' gradients [ranks, values], and the training that they come from."""
    trainer = Trainer(Run("oscar", "", "dense_ring", ranks=RANKS), 1, SIZES)
    for _ in range(STEPS):
        trainer.step()
    first = trainer.gradients.clone()
    trainer.step()
    return trainer, [first, trainer.gradients.clone()]


def counted(scheme: str, of: list[torch.Tensor], names: Any) -> Counts:
    """Return the bytes of the messages of the last of calls that sum ``of``."""
    recorder = Recorder()
    ranks = collectives(zenc.compile_text(scheme, ranks=RANKS), RANKS, on_send=recorder.on_send)
    for each in of:
        recorder.sent.clear()
        run_all(ranks, list(each.clone()), "mean", name=names)
    return recorder.counts()


def static_bytes(of: torch.Tensor, bits: int) -> float:
    """Return bytes of an ideal coder with one table for a whole call: the entropy of all integers of a ring."""
    values = of.numpy().astype(np.float64)
    exponent = np.ceil(np.log2(np.abs(values).max() / (2 ** (bits - 1) - 1)))
    integers = np.rint(values / 2.0**exponent).astype(np.int64)
    ends = [part * values.shape[1] // RANKS for part in range(RANKS + 1)]
    sent = []
    for part in range(RANKS):
        own = np.roll(integers[:, ends[part] : ends[part + 1]], -part - 1, axis=0)
        sums = own.cumsum(axis=0)
        sent += [sums[:-1].ravel(), np.tile(sums[-1], RANKS - 1)]
    shares = np.unique(np.concatenate(sent), return_counts=True)[1].astype(np.float64)
    return float(-(shares * np.log2(shares / shares.sum())).sum() / 8)


def measured() -> dict[str, Any]:
    """Return all that needs gradients and calls."""
    trainer, of = gradients()
    return {
        "values": int(of[0].shape[1]),
        "messages": {
            str(bits): {ranges: counted(text(bits, ranges), of, trainer.names) for ranges in RANGES} for bits in BITS
        },
        "static": {str(bits): static_bytes(of[1], bits) for bits in BITS},
    }


def software() -> dict[str, float]:
    """Return bytes of float32 a second that zenc's coder takes and gives on one core, by the lab's kernels."""
    return {name: json_of(MEASURED)[name] for name in CODER}


def coder(rate: float, speeds: dict[str, float]) -> Calibration:
    """Return links of ``rate`` without latency, and kernels that take no time but the coder."""
    return replace(bandwidth_only("links", rate), compression=speeds)


def seconds(bits: int, ranges: str, counts: Counts | None, values: int, by: Calibration) -> float:
    """Return the seconds of a call with messages of ``counts``; of the dense ring without."""
    way, gradient = network(None, RANKS, by), uniform(1.0, values, 1, "f32")
    if counts is None:
        return predict_on(plan_of("dense_ring", RANKS), gradient, way, by).seconds
    found = np.array(counts, dtype=np.float64)

    def weigh(step: int, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(found[step, ranks])

    return predict_on(plan_of_text(text(bits, ranges), RANKS), gradient, way, by, counted=weigh).seconds


def simulated(of: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each width of integers: how many times fewer bytes, and how many times faster by which coder."""
    return [_row(bits, of) for bits in BITS]


def _row(bits: int, of: dict[str, Any]) -> dict[str, Any]:
    counts, values = of["messages"][str(bits)], of["values"]
    dense = 4.0 * values * 2 * (RANKS - 1)
    equal = sum(map(sum, counts["equal"]))

    def faster(ranges: str, rate: float, speeds: dict[str, float]) -> float:
        by = coder(rate, speeds)
        plain = seconds(bits, ranges, None, values, by)
        return plain / seconds(bits, ranges, counts[ranges], values, by)

    free = dict.fromkeys(CODER, 1e18)
    return {
        "bits": bits,
        "fewer bytes": dense / equal,
        "over a static table": of["static"][str(bits)] / equal,
        "faster, equal ranges": faster("equal", RATE, free),
        "faster": faster("by bytes", RATE, free),
        **{f"faster, coder {times}": faster("by bytes", RATE, dict.fromkeys(CODER, times * RATE)) for times in CODERS},
        "faster, software": faster("by bytes", SLOW_RATE, software()),
    }
