"""Timelines of real steps, as Chrome's trace events, laid beside the predicted one that ``zenc simulate`` writes.

    process 1       measured: a row for each rank, with its calls, and in them pack, push 1, merge, pull 1, ..., expand;
                    a second one for calls that begin while another one is under way
    process 0       predicted, from the file of ``zenc simulate --trace``: rows and names are the same

Ranks meet when a timeline begins, and count from then; on machines whose clocks run alike, rows differ by no more than
a small message takes. Open the file at https://ui.perfetto.dev, or in chrome://tracing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from zenc.common.resources import write_text
from zenc.common.untrusted import read_json
from zenc.errors import CostError, Diagnostic, first_line
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.ranges import Recorder
from zenc.runtime.group.host_collectives import allreduce_max, gather

MEASURED = 1
"""The process of a measured timeline; a predicted one is process 0."""
BESIDE = 1 << 20
"""The number added to a rank for its second row, with calls that begin while another one is under way."""
MOST_BYTES = 1 << 28

Event = dict[str, Any]


@contextmanager
def traced(
    collectives: Sequence[Collective], name: str, path: str | os.PathLike[str], beside: str | os.PathLike[str] | None
) -> Iterator[Recorder]:
    """Write the work of all ranks in calls of ``collectives`` to ``path``, on rank 0: see ``Attachment.trace``."""
    collective = collectives[0]
    predicted = _read(beside) if beside is not None and collective.rank == 0 else []
    communicator, recorder = collective.communicator, Recorder()
    communicator.worker.within(lambda: allreduce_max(communicator, [0.0]))  # here they meet
    origin = time.perf_counter()
    for each in collectives:
        each.recorder = recorder
    try:
        yield recorder
    finally:
        for each in collectives:
            each.recorder = None
    found = communicator.worker.within(lambda: gather(communicator, _told(recorder, origin)))
    if collective.rank == 0:
        events = [_named("process_name", 0, f"measured: {name}, {collective.size} ranks")]
        for rank, text in enumerate(found):
            events += _row(rank, json.loads(text))
        data = {"traceEvents": [*predicted, *events], "displayTimeUnit": "ms"}
        write_text(path, json.dumps(data) + "\n")


def _told(recorder: Recorder, origin: float) -> bytes:
    """Return a message with all ended ranges: [what, tensor, call, start, end], seconds from ``origin``."""
    ranges = [[r.what, r.tensor, r.call, r.start - origin, r.end - origin] for r in list(recorder.ranges)]
    return json.dumps(ranges).encode()


def _row(rank: int, ranges: list[list[Any]]) -> Iterator[Event]:
    yield _named("thread_name", rank, f"rank {rank}")
    beside = _beside(ranges)
    if beside:
        yield _named("thread_name", rank + BESIDE, f"rank {rank}, beside")
    for what, tensor, call, start, end in ranges:
        name = f"call {call} {tensor}".rstrip() if what == "call" else what
        args = {"tensor": tensor, "call": call}
        times = {"ts": start * 1e6, "dur": (end - start) * 1e6, "tid": rank + BESIDE * (call in beside)}
        yield {"ph": "X", "name": name, "cat": "zenc", "pid": MEASURED, **times, "args": args}


def _beside(ranges: list[list[Any]]) -> set[int]:
    """Return the calls that are shown in a second row: those that began during the one in the first row."""
    beside, busy_until = set[int](), 0.0
    for start, end, call in sorted((start, end, call) for what, _, call, start, end in ranges if what == "call"):
        if start < busy_until:
            beside.add(call)
        else:
            busy_until = end
    return beside


def _named(name: str, row: int, text: str) -> Event:
    return {"ph": "M", "name": name, "pid": MEASURED, "tid": row, "args": {"name": text}}


def _read(path: str | os.PathLike[str]) -> list[Event]:
    try:
        data = read_json(path, MOST_BYTES)
        events = data["traceEvents"]
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
            raise ValueError("it has no list of events")
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{os.fspath(path)} holds no timeline: {first_line(error)}"
        help = "`zenc simulate SCHEME --trace FILE` writes one"
        raise CostError(Diagnostic("bad-trace", message, help=help)) from error
    return events
