"""The trace of a simulated step, as Chrome's trace events (Trace Event Format), which Perfetto shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zenc.strategy.simulation.replay import SHARED, Replay
from zenc.strategy.simulation.step import TrainingStep
from zenc.strategy.simulation.timeline import Resource

ROWS = {
    Resource.BACKWARD: "backward pass",
    Resource.STREAM: "GPU's side stream",
    Resource.HOST: "host",
    Resource.INSIDE_PUSH: "links inside",
    Resource.ACROSS: "calls",
}
"""The rows of a timeline, from the top."""


def chrome_trace(step: TrainingStep, of: Replay, labels: Sequence[str]) -> dict[str, Any]:
    """Return the operations of ``step`` as events, in microseconds from the forward pass; ``labels`` name tensors."""
    used = {SHARED.get(span.resource, span.resource) for span in of.spans}
    events = [_meta("process_name", 0, f"step of {step.name}")]
    events += [_meta("thread_name", int(row), name) for row, name in ROWS.items() if row in used]
    if step.forward:
        events.append(_event("forward", Resource.BACKWARD, 0.0, step.forward))
    for span in of.spans:
        row, tensor = SHARED.get(span.resource, span.resource), step.tensors[span.tensor]
        label = tensor.name if row is Resource.BACKWARD else f"{labels[span.tensor]}: {tensor.name}"
        event = _event(label, row, step.forward + span.start, span.end - span.start)
        events.append({**event, "args": {"values": tensor.numel}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(name: str, row: Resource, start: float, seconds: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 0, "tid": int(row), "ts": start * 1e6, "dur": seconds * 1e6}


def _meta(name: str, row: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 0, "tid": row, "args": {"name": text}}
