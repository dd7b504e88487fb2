"""Overlapping calls: bits, messages, order and errors are those of calls made one after another."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zenc
from tests.runtime.jobs import bits
from tests.support.cases import dense_tensor, sparse_tensor
from tests.support.fuzz import fuzzed
from tests.support.local import of_one_group
from tests.support.ranks import Ranks
from zenc.codegen.artifact import Artifact
from zenc.runtime.call.call_queue import Touched, touched_by
from zenc.runtime.call.collective import Collective
from zenc.wire.structs import MESSAGE_HEADER, packing

JOBS = "tests.runtime.test_overlap:"
SCHEMES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("balanced", {}), ("dense_ring", {}), ("holders", {}), ("topk_a2a", {"density": 0.1}), ("one_bit", {}),
)  # fmt: skip
LOSSY = 3
"""Index of the first lossy scheme, which takes dense tensors."""
CALL_FIELD = [field.name for field in MESSAGE_HEADER].index("call")


@dataclass(frozen=True)
class Made:
    """A call of the scheme with index ``scheme``; ``again``: of the tensor of the call before."""

    scheme: int
    units: int
    dense: bool
    name: str
    again: bool

    def gradient(self, rank: int, size: int, seed: int) -> torch.Tensor:
        make = dense_tensor if self.dense or self.scheme >= LOSSY else sparse_tensor
        return make("random", rank, size, self.units, 1, torch.float32, seed)


calls = st.builds(
    Made,
    scheme=st.integers(0, len(SCHEMES) - 1),
    units=st.sampled_from((1, 64, 700, 20_000)),
    dense=st.booleans(),
    name=st.sampled_from("ab"),
    again=st.booleans(),
)


@cache
def artifacts(size: int) -> list[Artifact]:
    return [zenc.compile(name, ranks=size, params=params) for name, params in SCHEMES]


def made(
    ranks: list[list[Collective]], sequence: list[Made], overlapping: bool
) -> tuple[list[list[Any]], list[list[int]]]:
    """Return by rank the results of the calls, whose names have one shape each, and the order in which they ended."""
    works: list[list[Any]] = [[] for _ in ranks]
    ended: list[list[int]] = [[] for _ in ranks]
    tensors: list[torch.Tensor] = []
    for number, call in enumerate(sequence):
        if not (call.again and number and sequence[number - 1].units == call.units and not tensors[0].is_sparse):
            tensors = [call.gradient(rank, len(ranks), number) for rank in range(len(ranks))]
        dense = not tensors[0].is_sparse
        scheme = call.scheme if dense or call.scheme < LOSSY else 0
        for rank, (of_rank, tensor) in enumerate(zip(ranks, tensors, strict=True)):
            work = of_rank[scheme].all_reduce(tensor, async_op=True, name=f"{call.name}{call.units}")
            work.then(partial(_note, ended[rank], number))
            works[rank].append(work)
        if not overlapping or number == len(sequence) - 1:
            [of_rank[-1].wait(20) for of_rank in works]
    results = [
        [(bits(work.wait(20)), work.stats["bytes_sent"], work.stats["bytes_received"]) for work in of_rank]
        for of_rank in works
    ]
    assert all(of_rank[0].communicator.worker.drain(20) for of_rank in ranks)  # whoever waits is woken first, then told
    return results, ended


def _note(ended: list[int], number: int, _: object) -> None:
    ended.append(number)


@fuzzed(10)
@given(st.integers(2, 5), st.lists(calls, min_size=2, max_size=9))
def test_calls_in_flight_give_what_calls_in_turn_give(size: int, sequence: list[Made]) -> None:
    in_turn, overlapping = (of_one_group(artifacts(size), size) for _ in range(2))
    expected, _ = made(in_turn, sequence, overlapping=False)
    found, ended = made(overlapping, sequence, overlapping=True)
    assert found == expected
    assert ended == [list(range(len(sequence)))] * size
    kept = [[one.state_dict() for one in of_rank[LOSSY:]] for ranks in (in_turn, overlapping) for of_rank in ranks]
    assert str(kept[:size]) == str(kept[size:])


def test_one_call_is_under_way_beside_the_one_before_and_no_more() -> None:
    """While rank 1 stays away, rank 0 sends what it can of two calls, and nothing of a third."""
    seen: set[int] = set()

    def watch(packet: torch.Tensor) -> torch.Tensor:
        header = bytes(packet[:48].tolist())
        seen.add(int(packing(MESSAGE_HEADER).unpack_from(header)[CALL_FIELD]))
        return packet

    (first,), (second,) = of_one_group(artifacts(2)[:1], 2, on_send=watch)
    works = [first.all_reduce(torch.ones(50 + number), async_op=True) for number in range(4)]
    deadline = time.monotonic() + 20
    while len(seen) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert seen == {1, 2}
    assert not any(work.is_completed() for work in works)
    for number in range(4):
        second.all_reduce(torch.ones(50 + number), async_op=True)
    assert [float(work.wait(20)[0]) for work in works] == [2.0] * 4 and seen == {1, 2, 3, 4}


def test_a_group_that_closes_ends_the_calls_in_flight() -> None:
    ranks = of_one_group(artifacts(3)[:1], 3)
    works = [one.all_reduce(torch.ones(1000), async_op=True) for _ in range(3) for (one,) in ranks]
    for (one,) in ranks:
        one.communicator.close(20)
    assert all(work.is_completed() for work in works)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (Touched(frozenset("a")), Touched(frozenset("ab")), True),
        (Touched(frozenset("a"), 0, 4), Touched(frozenset("b"), 4, 8), False),
        (touched_by(torch.ones(4), frozenset()), touched_by(torch.ones(4), frozenset()), False),
        (touched_by(torch.ones(0), frozenset()), touched_by(torch.ones(2), frozenset()), False),
    ],
)
def test_what_meets(one: Touched, other: Touched, meet: bool) -> None:
    assert one.meets(other) is meet and other.meets(one) is meet


def test_views_of_one_tensor_meet_where_they_overlap() -> None:
    whole = torch.ones(6, 4)
    column, row, rest = (touched_by(view, frozenset()) for view in (whole[:, 1], whole[1], whole[3:]))
    assert column.meets(row) and column.meets(rest) and not row.meets(rest)


def fails(group: Any, local: bool) -> list[tuple[str, ...]]:
    """Return the results of five calls, the second of which fails on rank 1 alone or because of another shape."""
    collective = zenc.load("balanced", group, deadline=30)
    works = []
    for number in range(5):
        wrong = number == 1 and group.rank() == 1
        units = 300_000 + wrong * (not local)
        ids = torch.arange(0, units, 2)[None] + 2 * units * (wrong and local)
        sparse = torch.sparse_coo_tensor(ids, torch.ones(ids.shape[1], 4), (units, 4), check_invariants=False)
        works.append(ending(partial(collective.all_reduce, sparse, async_op=True)))
    return [work if isinstance(work, tuple) else ending(partial(work.wait, 60)) for work in works]


def ending(step: Callable[[], Any]) -> Any:
    """Return the result of ``step``, bits for a tensor, or its error: a later call may find the group broken."""
    try:
        found = step()
        return (bits(found),) if isinstance(found, torch.Tensor) else found
    except zenc.ZencError as error:
        return type(error).__name__, error.diagnostics[0].id


def test_a_call_that_fails_fails_alone_and_those_behind_it_say_so() -> None:
    with Ranks(3) as ranks:
        for local, ids in (True, {"unit-out-of-range", "peer-lost"}), (False, {"different-calls", "peer-lost"}):
            found = ranks.run(JOBS + "fails", local=local)
            before, failed, *behind = zip(*found, strict=True)
            assert len(before[0]) == 1 and set(before) == {before[0]}
            assert {id for _, id in failed} <= ids and failed[1][1] != "peer-lost"
            assert set(sum(behind, ())) == {("SynchronisationError", "group-broken")}
