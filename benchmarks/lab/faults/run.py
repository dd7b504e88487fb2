"""Trials of all schemes under all disturbances, one after another on one cluster."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.lab.faults.disturbances import DEADLINE, DISTURBANCES, RANKS, VICTIM, WAYS, Disturbance, happening
from benchmarks.lab.launch import environment_of
from benchmarks.lab.settings import LabError
from benchmarks.pages import ROOT
from zenc.lab.cluster import EmulatedCluster
from zenc.lab.impairment import ImpairedCluster
from zenc.lab.ranks import PORT

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


LIMIT = 180.0
"""Seconds in which a rank has to answer; one that does not is killed, and counts as dead."""


class OrderedRanks:
    """Processes of ranks, one on each host; ``processes`` are their numbers as the lab sees them."""

    def __init__(self, cluster: EmulatedCluster, ranks: int, variables: dict[str, str], generation: int) -> None:
        self._started = [
            subprocess.Popen(
                cluster.command(rank, [sys.executable, "-m", "benchmarks.lab.faults.worker"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**environment_of(rank, ranks, PORT + generation, cluster), **variables},
                text=True,
                start_new_session=True,  # an interrupt from the keyboard is for the lab, which then ends the ranks
            )
            for rank in range(ranks)
        ]
        self.processes = [int(answer["process"]) if answer else 0 for answer in self.answers(range(ranks))]

    def tell(self, order: dict[str, Any]) -> None:
        for process in self._started:
            assert process.stdin
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()

    def answers(self, ranks: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return the answers of ``ranks``; None of one that is dead."""
        with self._in_time():
            return [self._answer(rank) for rank in ranks]

    def wake(self) -> None:
        """Let nsenter, which waits for each rank, go on: it stops when its child is stopped, and holds its output."""
        for process in self._started:
            process.send_signal(signal.SIGCONT)

    def _answer(self, rank: int) -> dict[str, Any] | None:
        lines = self._started[rank].stdout
        assert lines
        line = lines.readline()
        return json.loads(line) if line else None

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Kill all ranks if the block takes longer than ``LIMIT`` seconds, so that nobody waits for them any more."""
        timer = threading.Timer(LIMIT, self._kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _kill(self) -> None:
        for process in self._started:
            process.kill()

    def close(self) -> None:
        self._kill()
        for process in self._started:
            process.communicate()


RATE, CALLS = "100mbit", 40


def trials(
    disturbances: Sequence[Disturbance], schemes: Sequence[str], ways: Sequence[str], ranks: int = RANKS
) -> Iterator[Trial]:
    """Yield a trial for each way, disturbance and scheme; raises LabError where a scheme can't be loaded.

    Ranks stay for the next trial of a way where nothing has failed.
    """
    cluster = ImpairedCluster(ranks, RATE)
    with cluster, ExitStack() as held:
        bench = Bench(cluster, ranks, held)
        for way in ways:
            for by in disturbances:
                for scheme in schemes:
                    done = bench.trial(by, scheme, way)
                    print(f"{way:5} {scheme:12} {by.name}: {_said(done)}", file=sys.stderr)
                    yield done
            bench.stop()


class Bench:
    """A cluster and the ranks on it, which are started again where they have failed."""

    def __init__(self, cluster: ImpairedCluster, ranks: int, held: ExitStack) -> None:
        self.cluster, self.size, self.generation = cluster, ranks, 0
        self.ranks: OrderedRanks | None = None
        held.callback(self.stop)

    def stop(self) -> None:
        if self.ranks:
            self.ranks.close()
        self.ranks = None

    def trial(self, by: Disturbance, scheme: str, way: str) -> Trial:
        """Return the trial of calls of ``scheme`` while the cluster is disturbed; it is loaded before that."""
        ranks = self._ready(way)
        everyone = range(self.size)
        ranks.tell({"load": scheme})
        if any(answer is None or answer["error"] or not answer["well"] for answer in ranks.answers(everyone)):
            raise LabError(f"{scheme} could not be loaded; what its ranks said stands above")
        with happening(self.cluster, by, ranks.processes[VICTIM]) as end:
            ranks.tell({"calls": CALLS})
            others = [rank for rank in everyone if rank != VICTIM]
            records = dict(zip(others, ranks.answers(others), strict=True))
            end()
            ranks.wake()
            records[VICTIM] = ranks.answers([VICTIM])[0]
        done = Trial(by.name, scheme, way, tuple(records[rank] for rank in everyone))
        if any(record is None or record["error"] for record in done.records):
            self.stop()
        return done

    def _ready(self, way: str) -> OrderedRanks:
        if self.ranks is None:
            variables = {"ZENC_SOCKETS": WAYS[way], "ZENC_SHARED_MEMORY": "0"}
            self.ranks = OrderedRanks(self.cluster, self.size, variables, self.generation)
            self.generation += 1
        return self.ranks


def _said(trial: Trial) -> str:
    of = trial.to_json()
    sums = f"{of['sums']} sums, the slowest call {of['slowest']:.2f} s"
    failed = f"; {of['errors']} after {of['latest_error']} s" if of["errors"] else ""
    return sums + failed + "".join(f"; BROKEN: {line}" for line in of["broken"])
