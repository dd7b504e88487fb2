"""Trials: what became of the calls of a scheme under a disturbance, and whether it is what must be.

Trial = disturbance x scheme x way x (rank -> Record?)      # None: of a rank that died
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.lab.faults.disturbances import DEADLINE, DISTURBANCES, VICTIM

KNOWN = ("deadline", "peer-lost", "group-broken")
"""Ids of the errors that a rank may get whose peers die or stay away."""
SLACK = 2.0
"""Seconds that an error may come after the deadline: those in which a rank leaves its group, and of a busy machine."""
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """The records of all ranks under a disturbance, which make a line of the report."""

    disturbance: str
    scheme: str
    way: str
    records: tuple[Record | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return rounded values, with the words of one error alone: that which names the victim, where one does."""
        alive = [record for record in self.records if record]
        return {
            "disturbance": self.disturbance,
            "scheme": self.scheme,
            "way": self.way,
            "calls": max((record["made"] for record in alive), default=0),
            "sums": sum(record["well"] for record in alive),
            "wrong": sum(record["made"] - record["well"] for record in alive),
            "slowest": round(max((record["slowest"] for record in alive), default=0.0), 3),
            "errors": dict(Counter(record["error"] for record in alive if record["error"])),
            "latest_error": round(max((record["error_seconds"] for record in alive), default=0.0), 2),
            "error": self.naming(),
            "tcp": dict(sum((Counter(record["tcp"]) for record in alive), Counter())),
            "broken": list(self.broken()),
        }

    def naming(self) -> str:
        """Return the first line of the error of a rank that lived, preferably of one that names the victim."""
        texts = [record["text"].splitlines()[0] for _, record in self.survivors() if record["error"]]
        return next((text for text in texts if _names(text)), texts[0] if texts else "")

    def survivors(self) -> Iterator[tuple[int, Record]]:
        """Yield all ranks but the victim of a fatal disturbance."""
        fatal = self.is_fatal
        for rank, record in enumerate(self.records):
            if record is not None and not (fatal and rank == VICTIM):
                yield rank, record

    @property
    def is_fatal(self) -> bool:
        """Return whether calls are to fail."""
        return next(each for each in DISTURBANCES if each.name == self.disturbance).is_fatal

    def broken(self) -> Iterator[str]:
        """Yield lines on faults: a wrong sum, a false alarm, an error that is late, unknown or names nobody."""
        for rank, record in enumerate(self.records):
            if record is None and not (self.is_fatal and rank == VICTIM):
                yield f"rank {rank} never ended"
            elif record is not None:
                yield from (f"rank {rank} {line}" for line in _wrong(record))
        failed = [record for _, record in self.survivors() if record["error"]]
        if failed and not self.is_fatal:
            yield f"a false alarm: {self.naming()}"
        if self.is_fatal and not failed:
            yield "nobody noticed"
        if self.is_fatal and failed and not _names(self.naming()):
            yield f"no error names rank {VICTIM}: {self.naming()}"


def _wrong(record: Record) -> Iterator[str]:
    if record["made"] > record["well"]:
        yield "has a wrong sum"
    if record["error"] and record["error"] not in KNOWN:
        yield f"failed with {record['error']}"
    if record["error_seconds"] > DEADLINE + SLACK:
        yield f"failed after {record['error_seconds']:.1f} s"


def _names(text: str) -> bool:
    return f"rank {VICTIM} " in text + " "
