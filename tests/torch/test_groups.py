"""Groups of buckets, searches on measured steps and offload to the host, without processes or a GPU."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import zenc
from tests.support.local import collectives
from zenc.runtime.lossy.residual_store import KeptVectors, NamedPiece, ResidualStore, fold
from zenc.strategy.merging import Grouping, search_groups
from zenc.torch import slot
from zenc.torch.step_plan import StepPlan
from zenc.torch.strategy.grouping import (
    AGAIN,
    MEASURED,
    WARM_UP,
    BucketGrouping,
    BucketShape,
    CutsByTensor,
    FullBuffers,
    MeasuredSearch,
    cuts_up_to,
)
from zenc.torch.strategy.host_offload import HostOffload

COUNTS = (1, 2, 1, 3, 1)
"""Parameters of the buckets of a step."""


@dataclass
class Bucket:
    """The part of a DDP bucket that groups read: the ``at``-th of those with ``counts`` parameters."""

    at: int
    counts: tuple[int, ...]
    given: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def index(self) -> int:
        return self.at

    def is_last(self) -> bool:
        return self.at == len(self.counts) - 1

    def parameters(self) -> list[torch.Tensor]:
        return [self.given.setdefault((self.at, number), torch.zeros(4)) for number in range(self.counts[self.at])]

    def buffer(self) -> torch.Tensor:
        return torch.zeros(4 * self.counts[self.at])


def plan_by(grouping: BucketGrouping) -> StepPlan:
    plan = StepPlan()
    plan.grouping = grouping
    return plan


def own_way(_: object) -> Any:
    return lambda *_: torch.futures.Future()


def step_of(plan: StepPlan, counts: tuple[int, ...], given: dict[Any, torch.Tensor]) -> list[int]:
    """Return the number of buckets of each group of a step."""
    found = [0]
    for at in range(len(counts)):
        found[-1] += 1
        if plan.of(Bucket(at, counts, given), own_way).sums:  # type: ignore[arg-type]
            found.append(0)
    assert found.pop() == 0, "the last bucket ends a group"
    return found


@pytest.mark.parametrize(
    ("cuts", "expected", "missed"),
    [((1, 4), [1, 2, 2], ()), ((2,), [2, 3], (2,)), ((5, 6, 7), [4, 1], (5, 6)), ((), [5], ())],
    ids=str,
)  # fmt: skip
def test_cuts_are_followed_as_far_as_buckets_go_and_rebuilt_ones_are_learned(cuts, expected, missed):
    told, given, others = [], {}, {}
    groups = plan_by(CutsByTensor(cuts, lambda *found: told.append(found)))
    assert step_of(groups, (8,), others) == [1], "DDP's first step has one bucket"
    assert step_of(groups, COUNTS, given) == [1] * 5
    assert [step_of(groups, COUNTS, given) for _ in range(5)] == [expected] * 5
    assert told == ([(missed, (1, 3, 4, 7))] if missed else []), "said once"
    assert step_of(groups, COUNTS, {}) == [1] * 5, "other parameters"


def test_buffers_are_filled_in_turn():
    given: dict[Any, torch.Tensor] = {}
    groups = plan_by(FullBuffers(3 * 16))
    assert [step_of(groups, COUNTS, given) for _ in range(2)] == [[1] * 5, [2, 1, 1, 1]]


def test_a_search_on_measured_steps_finds_what_one_on_the_model_does():
    """A model's steps are timed by a fake clock; after a restart nothing that is known is tried again."""
    buckets = tuple(BucketShape((number,), 4) for number in range(12))

    def seconds(ends: tuple[int, ...]) -> float:
        return 0.01 + sum(0.001 * abs(end - 7) for end in ends) + (0.005 if not ends else 0.0)

    def searched(search: MeasuredSearch, now: list[float]) -> int:
        ends, steps = tuple(search.ends(buckets)), 0
        while search.found is None:
            now[0] += seconds(ends)
            steps += 1
            if search.step_begins():
                ends = tuple(search.ends(buckets))
        return steps

    now, agreed = [0.0], []
    first = MeasuredSearch(cuts_up_to(2), lambda took: agreed.append(took) or took, clock=lambda: now[0])
    steps = searched(first, now)
    expected = search_groups(len(buckets), seconds, 2)
    assert first.found is not None and first.found.ends == expected.ends == (7,)
    assert first.found.seconds == pytest.approx(expected.seconds)
    assert len(agreed) == len(first.known) == expected.asked
    assert steps == len(agreed) * (WARM_UP + MEASURED + 1)
    again = MeasuredSearch(cuts_up_to(2), lambda took: took, clock=lambda: now[0])
    again.restore(first.state())
    assert searched(again, now) == 0 and again.found == first.found
    assert "2 of 12 buckets, which end before 7: 10 ms a step, 15 ms in one group" in str(first)


@pytest.mark.parametrize(("restless", "again"), [(60, 3), (10**6, AGAIN)], ids=["for a while", "for ever"])
def test_steps_in_which_a_rule_tries_schemes_say_nothing_of_groups(restless, again):
    """Steps with tries take longer, and tries are repeated so seldom that a search ends whatever rules do."""
    steps, now = [0], [0.0]
    search = MeasuredSearch(
        lambda buckets, seconds: Grouping((), seconds(()), 1),
        lambda took: took,
        clock=lambda: now[0],
        choices=lambda: min(steps[0], restless),
    )
    search.ends((BucketShape((0,), 4),))
    while search.found is None:
        steps[0] += 1
        now[0] += 3.0 if steps[0] <= restless else 1.0
        search.step_begins()
    assert steps[0] == (again + 1) * (WARM_UP + MEASURED + 1)
    assert search.known == {(): pytest.approx(1.0 if restless == 60 else 3.0)}


class FakeCopies:
    """Copies between two tensors of the CPU, which record their order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.rooms = 0

    def to_host(self, gradient: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
        self.said.append("begun")
        return gradient

    def wait(self, event: torch.Tensor) -> None:
        self.said.append("there")
        self.room_of.copy_(event)

    def back(self, room: torch.Tensor, gradient: torch.Tensor) -> None:
        self.said.append("back")
        gradient.copy_(room)

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        self.rooms += 1
        self.room_of = torch.full_like(gradient, torch.nan)
        return self.room_of


def test_gradients_that_are_summed_on_the_host():
    """The call reads its copy once it is there, the result is brought back, and memory is lent again."""

    def rank(collective: Any) -> tuple[list[float], list[str], int]:
        copies, counted = FakeCopies(), []
        offload = HostOffload(copies)
        for step in range(2):
            gradient = torch.full((5,), float(collective.rank + step))
            work, averaged = offload.average(collective, gradient, "w", False, counted.append)
            result = averaged.wait()
            assert result is gradient and counted[-1] is work
        return gradient.tolist(), copies.said, copies.rooms

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(rank, collectives(zenc.compile("dense_ring", ranks=2), 2)))
    assert found == [([1.5] * 5, ["begun", "there", "back"] * 2, 1)] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("finite", [True, False])
def test_what_one_scheme_has_kept_is_in_the_call_of_another(dtype, finite):
    store, pieces = ResidualStore(), (NamedPiece("a", (2, 3)), NamedPiece("b", (2,)))
    kept = torch.tensor([0.5, 0, 0, 2**-10, 0, -2])
    store.restore("a", (2, 3), 4, KeptVectors(kept.clone()), None)
    gradient = torch.arange(8, dtype=dtype)
    folded = fold(store, pieces, gradient)
    assert folded is not None
    folded.end(gradient * 2 if finite else gradient * torch.nan)
    left = store.entries["a"].vectors.residual
    if finite:
        rest = torch.zeros(6) if left is None else left
        assert torch.equal(gradient[:6].float() + rest, torch.arange(6) + kept), "nothing is lost"
        assert (left is None) == (dtype is torch.float32), "3 + 1 / 1024 does not fit into 16 bits"
        store.take_back(["a"])
    assert torch.equal(store.entries["a"].vectors.residual, kept) and store.entries["a"].step == 4
    assert fold(ResidualStore(), pieces, gradient) is None


def test_a_sparse_gradient_that_ddp_cannot_sum_is_an_error_that_says_so(monkeypatch):
    """Only a GPU has NCCL, so its words come from a stand-in for DDP's own hook."""

    def refuses(group: object, bucket: object) -> None:
        raise RuntimeError("NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead.")

    class OfTable:
        def __init__(self, gradient: torch.Tensor) -> None:
            self.gradient = gradient

        def buffer(self) -> torch.Tensor:
            return self.gradient

    monkeypatch.setattr(slot, "allreduce_hook", refuses)
    sparse: Any = OfTable(torch.eye(3).to_sparse(1))
    dense: Any = OfTable(torch.eye(3))
    with pytest.raises(zenc.TensorError, match="no-sparse-sums") as raised:
        slot.own_way(sparse, None)
    assert "NCCL does not support" in str(raised.value)
    with pytest.raises(RuntimeError, match="NCCL"):
        slot.own_way(dense, None)
