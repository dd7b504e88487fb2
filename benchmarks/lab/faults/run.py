"""Trials of all schemes under all disturbances, one after another on one cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from benchmarks.lab.faults.disturbances import RANKS, VICTIM, WAYS, Disturbance
from benchmarks.lab.faults.happening import happening
from benchmarks.lab.faults.ranks import OrderedRanks
from benchmarks.lab.faults.trials import Trial
from benchmarks.lab.settings import LabError
from zenc.lab.impairment import ImpairedCluster

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
        """End the ranks, if there are any."""
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
