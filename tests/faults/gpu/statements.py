"""Faults at every statement of GPUs: of each shipped scheme a rank dies, freezes or fails before each of them.

``python -m tests.faults.gpu.statements`` plays each kind on each rank in the emulator, and writes the table: half an
hour of two processors. ``--scheme NAME`` plays one scheme, and writes its row anew.
"""

import argparse
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from tests.faults.gpu.play import KINDS, NOTES, Played, artifact_of, left_since, play, statements_of, threads_and_files
from tests.faults.statements import Point
from tests.support.shipped import ALL

DEADLINE = 1.0
TABLE = Path("tests/golden/faults/gpu_statements.json")
TOLD = {"deadline", "peer-lost"}
"""Ids of the errors of ranks without a fault."""


@cache
def unharmed(scheme: str) -> Played:
    return play(scheme, None, 60.0)


def acting(scheme: str, rank: int) -> list[int]:
    """Return the numbers of a rank's statements that do something."""
    return [n for n, each in enumerate(statements_of(scheme, rank)) if each.operation not in NOTES]


def points(scheme: str) -> Iterator[Point]:
    """Yield each kind of fault before each statement of each rank."""
    for rank in range(artifact_of(scheme).plan.size or 0):
        yield from (Point(scheme, kind, rank, statement) for statement in acting(scheme, rank) for kind in KINDS)


def sample(scheme: str) -> Point:
    """Return one point of a scheme, which changes from scheme to scheme."""
    of_scheme = list(points(scheme))
    return of_scheme[ALL.index(scheme) * 7 % len(of_scheme)]


def broken(point: Point, played: Played, deadline: float) -> Iterator[str]:
    """Yield the broken promises of docs/internals/liveness.md, by number."""
    expected = unharmed(point.scheme).ends[0].result
    assert expected is not None
    if not played.happened:
        yield "the fault did not happen"
    others = [end for rank, end in enumerate(played.ends) if rank != point.rank]
    for rank, end in enumerate(played.ends):
        if end.seconds > 3 * deadline + 5 and rank != point.rank:
            yield f"promise 2: rank {rank} took {end.seconds:.1f} s"
        if (
            end.result is not None
            and not torch.equal(_dense(end.result), _dense(expected))
            and not (rank == point.rank and point.kind == "kills")
        ):
            yield f"promise 3: rank {rank} has another sum than without the fault"
        if end.outcome != "sum" and end.again != "group-broken":
            yield f"promise 8: rank {rank} failed, and its next call ended with {end.again or 'a sum'}"
    if strange := {end.outcome for end in others} - TOLD - {"sum"}:
        yield f"promise 6: a survivor ended with {', '.join(sorted(strange))}"
    failed = [end for end in others if end.outcome != "sum"]
    if failed and not any(_names(end.text, point.rank) for end in failed):
        yield f"promise 6: no survivor names the rank: {failed[0].text}"
    if point.kind == "raises" and played.ends[point.rank].outcome != "cuda-failed":
        yield f"promise 6: the rank that failed ended with {played.ends[point.rank].outcome}"
    if any(played.left):
        yield f"promise 10: messages are under way on devices {played.left}"


def _names(text: str, rank: int) -> bool:
    """Return whether ``rank`` is among those that ``text`` says are awaited: "ranks 1, 3, 8 to 63"."""
    listed = re.search(r"awaits ranks? ([\d, to]+)", text)
    spans = [re.findall(r"\d+", span) for span in listed[1].split(",")] if listed else []
    return any(int(span[0]) <= rank <= int(span[-1]) for span in spans if span)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor


def row_of(scheme: str, deadline: float = DEADLINE) -> dict[str, Any]:
    """Return a row of the table: points by kind, the other ranks' ends, and their longest wait."""
    row: dict[str, Any] = {"ranks": artifact_of(scheme).plan.size}
    row["statements"] = [len(acting(scheme, rank)) for rank in range(artifact_of(scheme).plan.size or 0)]
    unharmed(scheme)
    before = threads_and_files()
    kinds = {kind: Tally() for kind in KINDS}
    for point in points(scheme):
        kinds[point.kind].add(point, play(scheme, point, deadline), deadline)
        gc.collect()  # else streams of failed calls, with a stack a fiber, are soon more than a process may have
    threads, files = left_since(before)
    told = {kind: tally.to_json() for kind, tally in kinds.items()}
    return {**row, **told, "threads_left": threads, "files_left": files}


@dataclass
class Tally:
    """Counts of results of points of one kind."""

    points: int = 0
    others: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    broken: list[str] = field(default_factory=list)

    def add(self, point: Point, played: Played, deadline: float) -> None:
        others = [end for rank, end in enumerate(played.ends) if rank != point.rank]
        self.points += 1
        self.others.update(end.outcome for end in others)
        self.longest = max(self.longest, *(end.seconds for end in others))
        where = f"rank {point.rank}, statement {point.statement}"
        self.broken += [f"{where}: {line}" for line in broken(point, played, deadline)]

    def to_json(self) -> dict[str, object]:
        """Return a cell of the table."""
        others = dict(sorted(self.others.items()))
        told = {"points": self.points, "others": others}
        return {**told, "longest_s": round(self.longest, 1), "broken": self.broken}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.gpu.statements", description=__doc__)
    parser.add_argument("--json", type=Path, default=TABLE, help="where to write the table")
    parser.add_argument("--scheme", action="append", help="play this one, whose row in the table is written anew")
    parser.add_argument("--processes", type=int, default=2, help="schemes that are played beside each other")
    given = parser.parse_args()
    schemes = given.scheme or ALL
    found = json.loads(given.json.read_text()) if given.scheme and given.json.exists() else {}
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:  # which notices a process that dies
        playing = {pool.submit(row_of, scheme): scheme for scheme in schemes}
        for row in as_completed(playing):
            found[playing[row]] = row.result()
            write(given.json, found)
    return 1 if any(row[kind]["broken"] for row in found.values() for kind in KINDS) else 0


def write(path: Path, found: dict[str, dict[str, Any]]) -> None:
    lines = ",\n".join(f" {json.dumps(scheme)}: {json.dumps(found[scheme])}" for scheme in ALL if scheme in found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
