"""A simulation in words, and a call as a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zenc.format_units import seconds_text, size_text
from zenc.simulator.predict import Prediction
from zenc.simulator.sweep import Point, Simulation, SweepOutcome
from zenc.topology.units import bandwidth_text

_HEAD = ("scheme", "time", "ratio", "busiest sends", "steps", "messages", "kernels", "bottleneck")


def text(of: Simulation) -> str:
    """A table for each point, best first; then what of the numbers is a guess."""
    tables = "\n\n".join("\n".join(_table(point)) for point in of.points)
    return "\n".join([tables, *of.notes])


def _table(point: Point) -> Iterator[str]:
    where = f", {bandwidth_text(point.bandwidth)} a rank each way" if point.bandwidth else ""
    yield f"{point.size:,} rank{'s' if point.size > 1 else ''}, density {point.density:.3g}{where}"
    rows = [_HEAD, *(_row(point, outcome) for outcome in point.outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = [
            f"{cell:{'<' if i in (0, 7) else '>'}{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _row(point: Point, outcome: SweepOutcome) -> tuple[str, ...]:
    worst = outcome.worst
    each = list(outcome.predictions.values())
    counts = sum(found.steps for found in each), sum(found.messages for found in each)
    busy = f"{worst.bottleneck}: {worst.busy / worst.seconds:.0%} of {'it' if len(each) == 1 else 'the longest'}"
    return (
        outcome.scheme,
        seconds_text(outcome.seconds),
        f"{point.ratio(outcome):.3f}",
        size_text(outcome.sent),
        f"{counts[0]:,}",
        f"{counts[1]:,}",
        seconds_text(sum(found.kernels for found in each)),
        busy if worst.bottleneck and worst.seconds else "-",
    )


MOST_TRACED = 64
"""Rows of a trace; of more kinds of ranks the first ones are shown."""


def chrome_trace(of: Prediction) -> dict[str, Any]:
    """The steps of a call as Chrome's trace events (Trace Event Format), which Perfetto and chrome://tracing show.

    A row for each rank, or for one rank of each kind where many are alike. Times are microseconds.
    """
    assert of.of is not None
    members, sizes, stages = of.of.member.tolist(), of.of.sizes.tolist(), of.of.stages
    events: list[dict[str, Any]] = [_meta("process_name", 0, f"{of.scheme}, {of.size} ranks")]
    shown = sorted(zip(members, sizes, strict=True))[:MOST_TRACED]
    for member, size in shown:
        alike = f" and {size - 1} alike" if size > 1 else ""
        events.append(_meta("thread_name", member, f"rank {member}{alike}"))
    for span in (span for span in of.spans if members[span.rank] <= shown[-1][0]):
        stage = stages[span.stage]
        name = f"{stage.phase.name} {stage.number}"
        sent = float((stage.out * stage.bytes)[stage.src == span.rank].sum())
        received = float((stage.into * stage.bytes)[stage.dst == span.rank].sum())
        bytes = {"sent bytes": round(sent), "received bytes": round(received)}
        parts = (("starting", span.start, span.ready), (name, span.ready, span.sent), ("merge", span.sent, span.end))
        for what, start, end in parts:
            if end > start:
                events.append(_event(what, members[span.rank], start, end, bytes if what == name else {}))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _meta(name: str, row: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": 0, "tid": row, "args": {"name": text}}


def _event(name: str, row: int, start: float, end: float, more: dict[str, int]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 0, "tid": row, "ts": start * 1e6, "dur": (end - start) * 1e6, "args": more}
