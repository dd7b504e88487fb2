"""Faults at every statement: in each shipped scheme a rank dies, vanishes, freezes or fails before each of them.

``python -m tests.faults.statements`` plays all of them, and writes the table.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from tests.faults.play import Outcome, play
from tests.faults.promises import broken
from tests.faults.scenario import CallSpec, Fault, Scenario
from tests.support.shipped import ALL, LOSSY, plan_of_shipped
from zenc.plan.requirements import allowed

KINDS = ("kills", "vanishes", "freezes", "raises")
SIZES = (4, 8, 16)
TABLE = Path("tests/golden/faults/statements.json")


@dataclass(frozen=True)
class Point:
    """``kind`` of fault of ``rank`` before its statement ``statement``, from 0, of one call of ``scheme``."""

    scheme: str
    kind: str
    rank: int
    statement: int


@cache
def unharmed(scheme: str) -> Outcome:
    """Play a call of ``scheme`` without faults, among 4 ranks or as many as it allows."""
    size = next(iter(allowed(plan_of_shipped(scheme), SIZES)))
    return play(Scenario(1, size, (scheme,), (CallSpec(0, 60, scheme in LOSSY),)))


def points(scheme: str, kinds: tuple[str, ...] = KINDS) -> Iterator[Point]:
    """Yield each kind of fault before each statement of each rank."""
    for rank, statements in unharmed(scheme).statements.items():
        for statement in range(statements):
            yield from (Point(scheme, kind, rank, statement) for kind in kinds)


def sample(scheme: str) -> list[Point]:
    """Return a point of each statement, with ranks and kinds in turn."""
    size, turn = len(unharmed(scheme).statements), ALL.index(scheme)
    most = max(unharmed(scheme).statements.values())
    of_each = [(statement, (statement + turn) % size, KINDS[(statement + turn) % 4]) for statement in range(most)]
    ranks = unharmed(scheme).statements
    return [Point(scheme, kind, rank, min(at, ranks[rank] - 1)) for at, rank, kind in of_each]


def played(point: Point) -> tuple[Outcome, list[str]]:
    """Return the outcome, and broken promises: among others, that sums are those without a fault."""
    calm = unharmed(point.scheme)
    fault = Fault(point.kind, point.rank, point.statement, at_statement=True)
    outcome = play(replace(calm.scenario, faults=(fault,)))
    wrong = broken(outcome, exact=point.scheme not in LOSSY)
    if len(outcome.happened) != 1:
        wrong.append("the fault did not happen")
    expected = next(record.result for record in calm.records if record.result is not None)
    for record in outcome.records:
        if record.result is not None and not torch.equal(_dense(record.result), _dense(expected)):
            wrong.append(f"promise 3: rank {record.rank} has another sum than without the fault")
    return outcome, wrong


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor


def table() -> dict[str, object]:
    """Return, by scheme and kind, the number of points, how other ranks ended, and their longest wait."""
    rows: dict[str, object] = {}
    for scheme in ALL:
        calm = unharmed(scheme)
        of_kinds: dict[str, object] = {}
        for kind in KINDS:
            ends, longest, count, wrong = Counter[str](), 0.0, 0, []
            for point in points(scheme, (kind,)):
                outcome, lines = played(point)
                others = [r for r in outcome.records if r.call and r.rank != point.rank]
                ends.update(record.outcome for record in others)
                longest = max(longest, *[record.ended - record.began for record in others])
                wrong += [f"rank {point.rank}, statement {point.statement}: {line}" for line in lines]
                count += 1
            of_kinds[kind] = {
                "points": count,
                "others": dict(sorted(ends.items())),
                "longest_s": round(longest, 1),
                "broken": wrong,
            }
        rows[scheme] = {"ranks": calm.scenario.size, "statements": list(calm.statements.values()), **of_kinds}
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.statements", description=__doc__)
    parser.add_argument("--json", type=Path, default=TABLE, help="where to write the table")
    given = parser.parse_args()
    found = table()
    given.json.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(scheme)}: {json.dumps(row)}" for scheme, row in found.items())
    given.json.write_text("{\n" + lines + "\n}\n")
    return 1 if '"broken": ["' in lines else 0


if __name__ == "__main__":
    sys.exit(main())
