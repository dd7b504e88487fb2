"""Soaking: rounds one after another, with lasting processes, and the rules that they must keep."""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import connection

from tests.soak.processes import Signals, SoakedProcesses
from tests.soak.rank import Played
from tests.soak.resources import Trend, trend
from tests.soak.rounds import DEADLINE, KINDS, LASTING, SoakRound, round_of

KNOWN = ("deadline", "peer-lost", "different-calls", "group-broken")
"""Ids of the errors that a mishap may end calls with."""
SLACK = 4.0
"""Seconds that an error may come after the deadline on a busy machine."""
QUIET = 60.0
"""Seconds without a sum that are a failure."""
ROUNDS_BETWEEN_USAGE, SETTLED = 5, 1.5
"""Rounds from one look at resources to the next, and seconds before it, in which failed connections end."""

KEEPS = 20
"""Failures after which a soak ends."""
ROUNDS_OF_ALL = 150
"""Rounds in which mishaps of all kinds happen, but for one run in a thousand."""


@dataclass
class SoakFindings:
    """Findings of all rounds. ``mishaps``: those that have happened; some of the ``planned`` come after the end of
    their round.

    ``usage``: of each lasting process, seconds since the beginning and resources.
    """

    rounds: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    planned: Counter[str] = field(default_factory=Counter)
    mishaps: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    longest_without_a_sum: float = 0.0
    usage: dict[int, list[tuple[float, dict[str, float]]]] = field(default_factory=dict)

    def trends(self) -> Iterator[tuple[int, str, Trend]]:
        for slot, samples in self.usage.items():
            times = [time for time, _ in samples]
            for name in samples[0][1]:
                yield slot, name, trend(times, [used[name] for _, used in samples])

    def missing(self) -> list[str]:
        """Return lines on kinds of mishaps that have not happened, of a run in which all should have."""
        kinds = [kind for kind in KINDS if kind != "none" and not self.mishaps[kind]]
        return [f"of {self.rounds} rounds none had {kind}" for kind in kinds] if self.rounds >= ROUNDS_OF_ALL else []

    def rising(self) -> list[str]:
        return [
            f"{name} of process {slot} rose by {of.rises:.1f} ({of.sure:.1f} sigma) from about {of.median:.1f}"
            for slot, name, of in self.trends()
            if not of.is_flat(name)
        ]


class StuckError(Exception):
    """A soak can't go on: no sum came for too long, or a process has ended by itself."""


class Soak:
    """Rounds with ``processes``; ``quiet``: seconds without a sum that are a failure."""

    def __init__(self, processes: SoakedProcesses, quiet: float = QUIET) -> None:
        self.processes, self.quiet, self.found = processes, quiet, SoakFindings()
        self._began = self._last_sum = time.monotonic()

    def run(self, seed: int, numbers: range, seconds: float) -> SoakFindings:
        """Run the rounds of ``numbers`` that begin within ``seconds``; one that gets stuck is the last."""
        for number in numbers:
            if time.monotonic() > self._began + seconds:
                break
            try:
                self._round(round_of(seed, number))
            except StuckError as failure:
                self.found.failures.append(f"round {number}: {failure}")
                break
            if len(self.found.failures) >= KEEPS:
                break
            if number % ROUNDS_BETWEEN_USAGE == ROUNDS_BETWEEN_USAGE - 1:
                self._look()
        return self.found

    def _look(self) -> None:
        time.sleep(SETTLED)
        pipes = [self.processes.pipes[slot] for slot in LASTING]
        for pipe in pipes:
            pipe.send("usage")
        for slot, pipe in zip(LASTING, pipes, strict=True):
            self.found.usage.setdefault(slot, []).append((time.monotonic() - self._began, pipe.recv()[1]))

    def _round(self, of: SoakRound) -> None:
        found = self.found
        for place, slot in enumerate(of.members):
            self.processes.pipes[slot].send((of, place))
        signals = Signals(self.processes, of)
        try:
            played = self._played(of, signals)
        finally:
            signals.end()
        found.rounds += 1
        found.planned[of.mishap.kind if of.mishap else "none"] += 1
        found.mishaps.update(happened(of, played, signals))
        found.ways[of.way] += 1
        found.schemes.update(of.schemes)
        for each in played.values():
            found.outcomes.update({"sum": each.sums, **({each.error: 1} if each.error else {})})
        found.failures += [f"round {of.number}: {line}" for line in broken(of, played)]

    def _played(self, of: SoakRound, signals: Signals) -> dict[int, Played]:
        """Return each member's result, without that of a killed one. Raise StuckError."""
        waiting = {self.processes.pipes[slot]: place for place, slot in enumerate(of.members)}
        loading, played = len(waiting), dict[int, Played]()
        while waiting:
            for pipe in connection.wait(list(waiting), signals.send()):
                assert isinstance(pipe, connection.Connection)
                try:
                    kind, value = pipe.recv()
                except (EOFError, OSError):
                    self._ensure_killed(of, waiting.pop(pipe), signals)
                    continue
                self._count(kind)
                loading -= kind == "loaded"
                if kind == "done":
                    played[waiting.pop(pipe)] = value
            if not loading:
                signals.begin()
            self._ensure_moving(of, waiting)
        return played

    def _count(self, kind: str) -> None:
        if kind == "sum":
            now = time.monotonic()
            self.found.longest_without_a_sum = max(self.found.longest_without_a_sum, now - self._last_sum)
            self._last_sum = now

    def _ensure_moving(self, of: SoakRound, waiting: Mapping[connection.Connection, int]) -> None:
        if waiting and (seconds := time.monotonic() - self._last_sum) > self.quiet:
            for slot in of.members:
                self.processes.signal(slot, signal.SIGUSR1)  # it shows its threads on its standard error
            raise StuckError(
                f"nothing was reduced for {seconds:.0f} s; ranks {sorted(waiting.values())} have not ended"
            )

    def _ensure_killed(self, of: SoakRound, place: int, signals: Signals) -> None:
        if not (signals.has_killed and of.mishap and of.mishap.member == place):
            process = self.processes.processes[of.members[place]]
            process.join(5.0)
            raise StuckError(f"rank {place} ended by itself, with {process.exitcode}")


def happened(of: SoakRound, played: Mapping[int, Played], signals: Signals) -> list[str]:
    """Return the kind of the mishap of a round, if it has come."""
    kind = of.mishap.kind if of.mishap else "none"
    came = {
        "kills": signals.has_killed,
        "cuts": any(each.has_cut for each in played.values()),
        "reshapes": any(each.error for each in played.values()),
    }
    return [kind] if of.mishap and came.get(kind, signals.has_stopped) else []


def broken(of: SoakRound, played: Mapping[int, Played]) -> Iterator[str]:
    """Yield lines on faults in a round: a wrong sum, a false alarm, an error that is late or of another kind."""
    for place, each in played.items():
        late = DEADLINE * (1 + of.window) + SLACK + (of.mishap.seconds if of.mishap else 0.0)
        if each.wrong:
            yield f"rank {place} has a wrong sum"
        if each.error and (of.is_harmless or each.error not in KNOWN):
            yield f"rank {place} failed: {each.error}: {each.text}"
        elif each.seconds > late:
            yield f"rank {place} failed after {each.seconds:.1f} s, with a deadline of {DEADLINE:g} s"
        if not each.error and each.sums + each.wrong != len(of.summands):
            yield f"rank {place} ended well with {each.sums} of {len(of.summands)} calls"
