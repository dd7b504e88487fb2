"""What the two lanes measured, side by side: for people as tables, for programs as JSON."""

from __future__ import annotations

import json
import platform
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from examples.language_model.corpus import Corpus
from examples.language_model.lane import Lane
from zenc.codegen.artifact import Artifact
from zenc.codegen.build.host import build
from zenc.torch.attach import Attachment

LOOPBACK = "bytes over loopback, a rank"
COUNTED = "bytes sent, zenc's own count"
STEP = "step, ms"
BACKWARD = "backward pass, ms"
BEYOND = "of that, synchronisation not hidden, ms"
INSIDE = "time in all-reduce, hidden or not, ms"

TOLERANCE = 1e-4
"""Largest relative difference between the losses of a step. Rounding differs, since the sums are made in another
order, and training carries the difference on and lets it grow; a lost or doubled gradient moves the loss far more."""


def gather(lanes: list[Lane], alone: list[float], text: Corpus, handle: Attachment) -> dict[str, Any]:
    """All measurements of all ranks, on every rank."""
    base = float(statistics.median(slowest(alone)))
    measured = {lane.name: summary(lane, base) for lane in lanes}
    first, second = (mean_of_ranks(lane.losses) for lane in lanes)
    apart = [abs(a - b) / abs(a) for a, b in zip(first, second, strict=True)]
    return {
        "machine": {"python": platform.python_version(), "torch": torch.__version__, "ranks": dist.get_world_size()},
        "text": text.describe(),
        "unigram loss": text.unigram_loss(),
        "backward without synchronisation, ms": base * 1e3,
        "lanes": measured,
        "largest relative difference of losses": max(apart),
        "relative difference of losses in step 1": apart[0],
        "equal": max(apart) <= TOLERANCE,
        "compiled": what_was_compiled(handle.collective.artifact),
        "last synchronisation of each table, rank 0": handle.stats,
    }


def summary(lane: Lane, base: float) -> dict[str, Any]:
    """A lane's figures; times are those of the slowest rank of each step, then the median over the steps."""
    backward = statistics.median(slowest(lane.backwards))
    return {
        "losses": mean_of_ranks(lane.losses),
        "held-out loss": lane.held_out,
        STEP: statistics.median(slowest(lane.steps)) * 1e3,
        BACKWARD: backward * 1e3,
        BEYOND: (backward - base) * 1e3,
        LOOPBACK: statistics.median(lane.loopback),
        COUNTED: statistics.median(mean_of_ranks(lane.counted)) if lane.counted else None,
        INSIDE: statistics.median(slowest(lane.inside)) * 1e3 if lane.inside else None,
    }


def mean_of_ranks(values: list[float]) -> list[float]:
    sums = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(sums)
    return [float(value) / dist.get_world_size() for value in sums]


def slowest(values: list[float]) -> list[float]:
    times = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return [float(value) for value in times]


def what_was_compiled(artifact: Artifact) -> dict[str, Any]:
    """The scheme that ran. Its kernels are in the cache by now, where `build` finds them without building."""
    kernels = build(artifact.sources, target=artifact.target)
    plan = artifact.plan
    return {"scheme": plan.scheme, "text": plan.doc, "digest": plan.digest, "kernels": str(kernels)}


def save(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=2, default=str) + "\n")


def show(console: Console, result: dict[str, Any]) -> None:
    text = result["text"]
    once, rarest = text["words that occur once"], text["occurrences of the rarest word"]
    tail = f"{once:,} of them occur once" if once else f"the rarest occurs {rarest} times"
    console.print(
        f"{text['vocabulary']:,} words ({tail}) of {text['files']:,} files; {text['words to train on']:,} to train on",
        highlight=False,
    )
    console.print(losses(result))
    console.print(costs(result))
    compiled = result["compiled"]
    console.print(f"{compiled['scheme']}: {compiled['text']}\nplan {compiled['digest']}", highlight=False)
    console.print(f"kernels {compiled['kernels']}", highlight=False, soft_wrap=True)
    console.print(verdict(result), highlight=False)


def losses(result: dict[str, Any]) -> Table:
    """Held-out losses at some steps, then the training losses' largest difference at any step."""
    first, second = result["lanes"].values()
    table = Table(title="loss on held-out text, nats a word over the whole vocabulary", title_justify="left")
    table.add_column("step", justify="right")
    for name in (*result["lanes"], "difference"):
        table.add_column(name, justify="right")
    for step, value in first["held-out loss"].items():
        other = second["held-out loss"][step]
        table.add_row(str(step), f"{value:.4f}", f"{other:.4f}", f"{abs(value - other):.1e}")
    base = f"{result['unigram loss']:.4f}"
    table.add_row("unigram", base, base, "", style="dim")
    return table


def costs(result: dict[str, Any]) -> Table:
    first, second = result["lanes"].values()
    table = Table(title="cost of a step (medians)", title_justify="left")
    table.add_column("")
    for name in (*result["lanes"], "DDP / zenc"):
        table.add_column(name, justify="right")
    rows = {
        LOOPBACK: "{:,.0f}",
        COUNTED: "{:,.0f}",
        STEP: "{:.1f}",
        BACKWARD: "{:.1f}",
        BEYOND: "{:.1f}",
        INSIDE: "{:.1f}",
    }
    for key, form in rows.items():
        a, b = first[key], second[key]
        ratio = f"{a / b:.2f}" if a and b and b > 0 else ""
        table.add_row(key, *("" if value is None else form.format(value) for value in (a, b)), ratio)
    return table


def verdict(result: dict[str, Any]) -> str:
    apart = result["largest relative difference of losses"]
    if result["equal"]:
        return f"training losses are equal but for rounding: the largest relative difference at any step is {apart:.1e}"
    return f"TRAINING LOSSES DIVERGE: the largest relative difference at any step is {apart:.1e}, above {TOLERANCE:.0e}"
