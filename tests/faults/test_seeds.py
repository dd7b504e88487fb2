"""Runs with faults in the simulator: thousands break no promise, nor does the compiled hub; planted bugs are found."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.hunt import findings_of, hunt, report_of
from tests.faults.play import play
from tests.faults.promises import broken
from tests.faults.scenario import Fault, Scenario, scenario_of
from zenc.rank_ir.ir import Merge
from zenc.runtime.call.call_queue import Job, Turn
from zenc.runtime.cpu.backend import CpuPrepared
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.cpu.executor import SegmentInterpreter
from zenc.runtime.group import communicator
from zenc.runtime.transports.gloo_transport import GlooTransport, _Posted

SEEDS = 300
ROOT = Path(__file__).resolve().parents[2]


def test_seeds_break_no_promise() -> None:
    """``python -m tests.faults --replay SEED`` plays a seed that fails again."""
    found = hunt(range(SEEDS))
    assert found.broken == {}
    assert found.seeds == SEEDS
    assert set(found.faults) == {"kills", "vanishes", "freezes", "stalls", "cuts", "slows", "raises"}
    assert set(found.changes) == {"swaps", "skips", "reshapes", "averages", "another"}
    assert min(found.calls[outcome] for outcome in ("sum", "deadline", "peer-lost", "different-calls")) > SEEDS / 10
    assert found.objects < SEEDS, "what a run has made goes when it is over"


def test_a_seed_plays_the_same_again() -> None:
    for seed in range(40, 60):
        one, other = play(scenario_of(seed)), play(scenario_of(seed))
        assert (one.digest, one.switches, one.seconds) == (other.digest, other.switches, other.seconds)
        assert [str(record) for record in one.records] == [str(record) for record in other.records]


def test_a_run_goes_on_from_its_report() -> None:
    whole, first = hunt(range(30)), hunt(range(12))
    both = hunt(range(12, 30), found=findings_of(report_of(first, 0)))
    measured = {"processor_seconds": 0, "simulated_hours": 0}
    assert report_of(both, 0) | measured == report_of(whole, 0) | measured


def test_the_page_says_what_the_long_run_has_found() -> None:
    report = json.loads((ROOT / "tests" / "golden" / "faults" / "seeds.json").read_text())
    page = (ROOT / "docs" / "internals" / "liveness.md").read_text()
    assert report["broken"] == {} and report["first"] == 0
    assert f"of the {report['seeds']:,} in `seeds.json` none broke one" in page


DAMAGED = 100


def damaged(seed: int) -> Scenario:
    """Return the scenario of ``seed``, with the headers of one message damaged."""
    of, random_ = scenario_of(seed), random.Random(seed)
    rank, peer = random_.sample(range(of.size), 2)
    flip = random_.choice((1 << random_.randrange(8), 0xFF, random_.randrange(1, 256)))
    fault = Fault("damages", rank, random_.randrange(20), peer, 0.0, byte=random_.randrange(80), flip=flip)
    return replace(of, faults=(fault,), change=None, hubs=True, rejoins=False)


def test_a_damaged_header_ends_in_an_error_and_never_in_a_wrong_sum() -> None:
    found, outcomes = {}, Counter[str]()
    for seed in range(DAMAGED):
        outcome = play(damaged(seed))
        if lines := broken(outcome):
            found[seed] = lines
        outcomes.update(record.outcome for record in outcome.records if record.call)
    assert found == {}
    assert min(outcomes[each] for each in ("sum", "deadline", "peer-lost")) > 5, outcomes


def test_the_hub_keeps_the_promises_that_streams_keep() -> None:
    found = {}
    for seed in range(1, 2 * DAMAGED, 4):
        if lines := broken(play(replace(scenario_of(seed), hubs=True))):
            found[seed] = lines
    assert found == {}


FOREVER = 1e9


def _unchecked_deadline(real: Any) -> Any:
    def wait_all(self: Channel, sending: list[Any]) -> None:
        deadline, self.deadline = self.deadline, FOREVER
        try:
            real(self, sending)
        finally:
            self.deadline = deadline

    return wait_all


def _forgotten_peer(real: Any) -> Any:
    """Let a rank that gives up tell its next peer alone, whose connection may have ended."""

    def _end_connections(group: Any, peers: Any) -> None:
        real(group, peers[:1])

    return _end_connections


def _counted_twice(real: Any) -> Any:
    """Add the last message in a merge of three twice."""

    def play(self: SegmentInterpreter, statement: Any) -> None:
        if isinstance(statement, Merge) and len(statement.segments) > 2:
            statement = Merge(statement.result, (*statement.segments, statement.segments[-1]), statement.frees)
        real(self, statement)

    return play


def _one_room(real: Any) -> Any:
    """Let overlapping calls receive into the same buffers."""

    def start(self: CpuPrepared, header: Any, losses: Any = None) -> Any:
        call = real(self, header, losses)
        inbox = getattr(call.interpreter, "inbox", None)
        if inbox is not None:
            inbox.room = self.rooms[0]
        return call

    return start


def _lock_over_a_wait(real: Any) -> Any:
    """Hold the lock that a call needs to end while waiting for it."""

    def wait(self: Job[Any], timeout: float | None = None) -> Any:
        with self._lock:
            return real(self, timeout)

    return wait


def _unsettled(real: Any) -> Any:
    """Write a call's result before the call before it has ended well."""
    return lambda self: None


def _raw_error(real: Any) -> Any:
    """Raise gloo's error for a connection that has already ended."""

    def receive(self: GlooTransport, peer: int, tag: int, buffer: Any) -> Any:
        return _Posted(self, self._recv([buffer], peer, tag), peer, buffer)

    return receive


def _unwatched(real: Any) -> Any:
    """Do not tell a wait for a partly received packet of the end of its connection."""
    return lambda self, work, peer, seconds: work.wait(timedelta(seconds=seconds))


def _goes_on(real: Any) -> Any:
    """Let the next call of a failed rank not know of the failure."""
    return lambda self: None


BUGS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a deadline that is not checked": (Channel, "wait_all", _unchecked_deadline),
    "an abort that forgets a peer": (communicator, "_end_connections", _forgotten_peer),
    "a message counted twice": (SegmentInterpreter, "play", _counted_twice),
    "a lock held over a wait": (Job, "wait", _lock_over_a_wait),
    "one buffer for two calls": (CpuPrepared, "start", _one_room),
    "a result that does not wait for the call before": (Turn, "settle", _unsettled),
    "an error of another library": (GlooTransport, "receive", _raw_error),
    "a packet that nobody looks after": (GlooTransport, "wait_for", _unwatched),
    "a failure that is forgotten": (communicator.Communicator, "ensure_healthy", _goes_on),
}
"""Bug -> the owner of the replaced attribute, its name, and the replacement."""


@contextmanager
def planted(bug: str) -> Iterator[None]:
    place, name, made = BUGS[bug]
    real = getattr(place, name)
    setattr(place, name, made(real))
    try:
        yield
    finally:
        setattr(place, name, real)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        found = hunt(range(2000), most=1)
        (seed,) = found.broken
        again = broken(play(scenario_of(seed)))
    assert again == found.broken[seed], "a seed is played again by its number alone"
    assert broken(play(scenario_of(seed))) == []
