"""Promises of the run time about faults, as checks of a finished run; docs/internals/liveness.md has them in words.

Each returns a line about what breaks it, or nothing.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch

from tests.faults.gradients import is_sum
from tests.faults.play import Outcome, Record
from tests.faults.scenario import DEADLINE, LOUD, Scenario
from zenc.runtime.group.communicator import LINGER_SECONDS

WELL = ("sum", "loaded")
SLACK = 20.0
"""Seconds that the slowest messages and turns of a scenario add up to."""
HOP = LINGER_SECONDS + 2.0
"""Seconds between the failure of a rank and that of a rank waiting for it."""
KNOWN = (
    "deadline", "peer-lost", "different-calls", "group-broken", "different-schemes", "peer-failed",
    "corrupt-message",
)  # fmt: skip
"""Ids of errors that a fault of another rank may end a call with."""


def ends(outcome: Outcome) -> Iterator[str]:
    """Check 1: every living rank ends each call that it makes."""
    if outcome.trouble is not None:
        yield f"the run did not end: {outcome.trouble!r}"
    stopped = _stopped(outcome)
    for record in outcome.records:
        if not record.outcome and record.rank not in stopped:
            yield f"{_name(record)} never ended"


def within_the_deadline(outcome: Outcome) -> Iterator[str]:
    """Check 2: no call lasts longer than the deadline and passing faults allow."""
    scenario = outcome.scenario
    waits = 1 if not scenario.window else 1 + 2 * outcome.exchanges
    held_up = sum(fault.seconds for fault, _ in outcome.happened if fault.seconds < math.inf)
    for record in outcome.records:
        parts = 3 if record.call is None else waits
        took = record.ended - record.began
        if record.outcome and took > DEADLINE * parts + held_up + SLACK:
            yield f"{_name(record)} took {took:.1f} s, with a deadline of {DEADLINE:g} s"
    if outcome.longest_asked > DEADLINE * (1 + outcome.exchanges):
        yield f"a wait of {outcome.longest_asked:g} s was begun, with a deadline of {DEADLINE:g} s"


def sums_are_exact(outcome: Outcome) -> Iterator[str]:
    """Check 3: a successful call has the sum of what every rank brought to it, each once."""
    calls = {(record.generation, record.number, record.rank): record.call for record in outcome.records if record.call}
    for record in outcome.records:
        if record.result is None:
            continue
        brought = [calls.get((record.generation, record.number, rank)) for rank in range(outcome.scenario.size)]
        if None in brought:
            yield f"{_name(record)} ended well, and rank {brought.index(None)} had not made it"
        elif not is_sum(record.result, [call for call in brought if call]):
            yield f"{_name(record)} has a wrong sum"


def ranks_agree(outcome: Outcome) -> Iterator[str]:
    """Check 4: all ranks that end a call well hold the same bits."""
    results: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in outcome.records:
        if record.result is not None:
            results[record.generation, record.number].append(record)
    for of_call in results.values():
        for one, other in pairwise(of_call):
            assert one.result is not None and other.result is not None
            if not torch.equal(_dense(one.result), _dense(other.result)):
                yield f"{_name(one)} and rank {other.rank} hold other sums"


def no_false_alarm(outcome: Outcome) -> Iterator[str]:
    """Check 5: a delay within the deadline is no error."""
    if _harmless(outcome):
        for record in outcome.records:
            if record.outcome not in WELL:
                yield f"{_name(record)} failed where nothing had: {record.outcome}: {record.text}"


def errors_name_the_cause(outcome: Outcome) -> Iterator[str]:
    """Check 6: an error has a documented id, and the first one (any, if its host vanished) names a dead rank."""
    for record in outcome.records:
        own = record.outcome == "Injected"
        if record.outcome and record.outcome not in (*WELL, *KNOWN) and not own:
            yield f"{_name(record)} failed with {record.outcome}: {record.text}"
    dead = [fault for fault, _ in outcome.happened if fault.kind in ("kills", "vanishes")]
    if len(outcome.happened) == len(dead) == 1 and outcome.scenario.change is None:
        failed = [r for r in outcome.records if r.call and r.generation == 0 and r.outcome in ("deadline", "peer-lost")]
        failed.sort(key=lambda record: record.ended)
        told = failed[:1] if dead[0].kind == "kills" else failed
        if told and not any(f"rank {dead[0].rank} " in record.text for record in told):
            yield f"{_name(told[0])} failed first, and does not name rank {dead[0].rank}: {told[0].text}"


def failures_are_told(outcome: Outcome) -> Iterator[str]:
    """Check 7: peers learn at once, and not by their deadline, of a rank that gives up or whose connections end."""
    if not outcome.happened or any(fault.kind not in LOUD for fault, _ in outcome.happened):
        return
    if outcome.scenario.change is not None:
        return
    begun = min([time for _, time in outcome.happened])
    for record in outcome.records:
        late = record.ended - max(begun, record.began)
        if (
            record.call
            and record.generation == 0
            and record.outcome not in ("", *WELL)
            and late > HOP * outcome.scenario.size
        ):
            yield f"{_name(record)} learnt of a failure after {late:.1f} s"


def broken_for_good(outcome: Outcome) -> Iterator[str]:
    """Check 8: after a failed call no call of the group ends well, and later ones fail at once."""
    for of_rank in _by_rank(outcome):
        failed = False
        for before, record in pairwise(of_rank):
            failed = failed or before.outcome not in WELL
            if failed and record.outcome == "sum":
                yield f"{_name(record)} ended well after one that failed"
            later = record.began >= before.ended
            if failed and later and record.outcome == "group-broken" and record.ended > record.began + SLACK:
                yield f"{_name(record)} of a broken group took {record.ended - record.began:.1f} s"


def tensors_are_kept(outcome: Outcome) -> Iterator[str]:
    """Check 9: the dense tensor of a failed call is as it was."""
    for record in outcome.records:
        if not record.is_kept:
            yield f"{_name(record)} failed, and has changed its tensor"


def nothing_is_left(outcome: Outcome) -> Iterator[str]:
    """Check 10: threads end with their group, and where nothing failed no message is under way."""
    stopped = _stopped(outcome)
    for fiber in outcome.left:
        if (
            fiber.process.rank not in stopped and fiber.name != "_end_connections"
        ):  # which lasts no longer than its process
            yield f"{fiber.name} of rank {fiber.process.rank} is left"
    if _harmless(outcome):
        yield from outcome.under_way
    yield from outcome.too_small


def a_new_group_works(outcome: Outcome) -> Iterator[str]:
    """Check 11: after a failure, ranks that are alive, or alive again, can make a new group, and sum."""
    if any(fault.kind not in ("kills", "cuts") for fault, _ in outcome.happened):
        return
    second = [record for record in outcome.records if record.generation == 1]
    if any(time >= record.began for _, time in outcome.happened for record in second):
        return
    loaded = [record for record in second if record.call is None and record.outcome == "loaded"]
    if len(loaded) == outcome.scenario.size:
        for record in second:
            if record.call and record.outcome != "sum":
                yield f"{_name(record)} failed in a new group: {record.outcome}: {record.text}"


PROMISES: tuple[Callable[[Outcome], Iterator[str]], ...] = (
    ends, within_the_deadline, sums_are_exact, ranks_agree, no_false_alarm, errors_name_the_cause, failures_are_told,
    broken_for_good, tensors_are_kept, nothing_is_left, a_new_group_works,
)  # fmt: skip


def broken(outcome: Outcome, exact: bool = True) -> list[str]:
    """Return the promises that a run breaks, with the reasons; schemes that are not ``exact`` skip 3 and 9."""
    inexact = () if exact else (sums_are_exact, tensors_are_kept)
    held = [(number, promise) for number, promise in enumerate(PROMISES, 1) if promise not in inexact]
    return [f"promise {number}: {line}" for number, promise in held for line in promise(outcome)]


def _harmless(outcome: Outcome) -> bool:
    """Return whether nothing happened that may make a call fail."""
    scenario: Scenario = outcome.scenario
    patient = all(
        fault.kind == "slows" or (fault.kind in ("stalls", "freezes") and fault.seconds <= DEADLINE / 3)
        for fault, _ in outcome.happened
    )
    return patient and scenario.change is None


def _stopped(outcome: Outcome) -> set[int]:
    """Return the ranks that are dead, or frozen for good."""
    return {process.rank for process in outcome.processes if process.dead and process.rank in outcome.deaths} | {
        process.rank for process in outcome.processes if process.frozen
    }


def _by_rank(outcome: Outcome) -> list[list[Record]]:
    """Return the records of each life of a rank in a group, in order."""
    found: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in outcome.records:
        found[record.rank, record.generation].append(record)
    return list(found.values())


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor


def _name(record: Record) -> str:
    what = f"call {record.number}" if record.call else "loading"
    return f"{what} of rank {record.rank}" + (f" in group {record.generation}" if record.generation else "")
