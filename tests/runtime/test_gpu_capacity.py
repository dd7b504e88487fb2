"""Capacity mode of collectives on emulated GPUs, and calls that graphs hold."""

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

import zenc
from tests.emulator.graphs import GLOBAL, graphs_on
from tests.emulator.libraries import Libraries
from tests.gpu.machine import emulator
from tests.support.cases import dense_tensor, same_bits, sparse_tensor
from tests.support.emulated_gpu import EmulatedRank, emulated_ranks, loaded_ranks
from tests.support.local import collectives, run_all
from zenc.runtime.call.planned_calls import Operation
from zenc.runtime.gpu import cuda_graph
from zenc.runtime.gpu.capacity import MOST_MORE, RELEARNED, CapacityLearner, FixedCapacity, LearnedCapacity, capacity_of
from zenc.runtime.gpu.cuda_graph import CapturedCall

UNITS, WIDTH = 300, 3
MAKERS: dict[str, Callable[..., torch.Tensor]] = {"sparse": sparse_tensor, "dense": dense_tensor}
_POOL = ThreadPoolExecutor(max_workers=8)


def on_all(ranks: list[EmulatedRank], work: Callable[[int], Any]) -> list[Any]:
    return [done.result() for done in [_POOL.submit(work, rank) for rank in range(len(ranks))]]


def gradients(make: Callable[..., torch.Tensor], size: int, seed: int, kind: str = "random") -> list[torch.Tensor]:
    return [make(kind, rank, size, UNITS, WIDTH, torch.float32, seed) for rank in range(size)]


def cpu_sums(artifact: zenc.Artifact, inputs: list[torch.Tensor], op: str = "sum") -> list[torch.Tensor]:
    return run_all(collectives(artifact, len(inputs)), [tensor.clone() for tensor in inputs], op)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("name", "size"), [("balanced", 3), ("zen", 4), ("dense_ring", 2), ("balanced", 1)])
def test_sums_are_those_of_the_cpu(name, size, make):
    artifact = zenc.compile(name, ranks=size)
    ranks = emulated_ranks(artifact, size, capacity=FixedCapacity(0.5, 1.0))
    for seed, kind in enumerate(("random", "everything", "empty_on_one")):
        inputs = gradients(make, size, seed, kind)
        found = run_all([rank.collective for rank in ranks], [tensor.clone() for tensor in inputs], "mean")
        assert same_bits([*cpu_sums(artifact, inputs, "mean"), *found])
        assert [rank.collective.stats["made_again"] for rank in ranks] == [kind == "everything"] * size


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("name", "size"), [("balanced", 3), ("zen", 4), ("sparcml", 4), ("balanced", 1)])
def test_calls_learn_how_much_room_they_need(name, size, make):
    """The first call is exact by default, so is one that does not fit, and later ones wait for the device once."""
    artifact = zenc.compile(name, ranks=size)
    ranks, waits, libraries = loaded_ranks(artifact, size), [0] * 10, Libraries()
    for turn, kind in enumerate(["random"] * 5 + ["everything"] * 5):
        inputs = gradients(make, size, 0, kind)
        waits[turn] -= libraries.calls("wait", 0)
        found = run_all(ranks, [tensor.clone() for tensor in inputs], "mean")
        assert same_bits([*cpu_sums(artifact, inputs, "mean"), *found])
        assert [rank.stats["made_again"] for rank in ranks] == [turn == 5] * size
        waits[turn] += libraries.calls("wait", 0)
    assert min(waits[2:5]) == min(waits[7:]) == 1 <= waits[0]  # one may wait twice, by its timing


def test_room_is_what_any_rank_counted_and_a_quarter_more():
    learner = CapacityLearner(lambda shares: [max(share, 0.1) for share in shares], 800)
    learner.ended(False, [3, 0, 1], [90, 4, 0], [100, 5, 0])
    assert learner.room is not None and learner.room.own == 1 == learner.room.total
    learner.ended(False, [3, 0, 1], [30, 4, 0], [100, 50, 50])
    assert (learner.room.own, learner.room.total) == pytest.approx((0.125, 0.375))


def played(needs: list[float], size: int = 800) -> tuple[int, int]:
    """Play calls that need shares of all units; count those that were exact at once, and those made again."""
    learner, exact, again = CapacityLearner(list, size), 0, 0
    for number, need in enumerate(needs, 1):
        made_again = learner.room is not None and need > learner.room.own
        exact, again = exact + (learner.room is None), again + made_again
        if made_again or not learner.is_sure or number % RELEARNED == 0:
            learner.ended(made_again, [round(1000 * need)], [round(1000 * need)], [1000])
    return exact, again


@pytest.mark.parametrize(
    ("needs", "exact", "again"),
    [
        ([0.1] * 500, 1, 0),
        ([0.1] * 250 + [0.5] * 250, 1, 1),
        ([0.1 * 1.01**turn for turn in range(230)], 1, 9),
        ([0.1 * 2 ** (turn % 3) for turn in range(500)], 57, 9),
        ([0.001 * 1.3**turn for turn in range(25)], 21, 4),
    ],
    ids=["equal", "one jump", "slow growth", "jumps", "fast growth"],
)
def test_calls_that_often_do_not_fit_are_exact(needs, exact, again):
    assert played(needs) == (exact, again)


def test_calls_whose_room_is_many_bytes_are_exact():
    assert played([0.5] * 300, MOST_MORE * 8 + 80) == (300, 0)
    assert played([0.5] * 300, MOST_MORE * 8 - 80) == (1, 0)
    assert played([1.0] * 300, 1 << 40) == (1, 0), "all units: there is no more"
    assert played([0.5] * 130 + [1.0] * 300, 1 << 40) == (2 * RELEARNED + 1, 0), "ranks look again"


def test_room_becomes_less_in_some_calls():
    """Calls of a group have numbers, so that all ranks compare what they counted in the same ones."""
    ranks = [
        rank.collective for rank in emulated_ranks(zenc.compile("balanced", ranks=2), 2, capacity=LearnedCapacity())
    ]
    run_all(ranks, gradients(dense_tensor, 2, 0, "everything"))
    sent = []
    for rank in ranks:
        rank.communicator.calls = RELEARNED - 2
    for _ in range(3):
        run_all(ranks, gradients(dense_tensor, 2, 0))
        sent.append(ranks[0].stats["bytes_sent"])
    assert sent[0] == sent[1] > sent[2]


class Graphs:
    """A call on each rank, held by a graph: of ``tensors``, one a rank."""

    def __init__(
        self,
        name: str,
        tensors: list[torch.Tensor],
        capacity: FixedCapacity,
        op: Operation = "sum",
        deadline: float = 60,
    ) -> None:
        self.artifact = zenc.compile(name, ranks=len(tensors))
        self.ranks = emulated_ranks(self.artifact, len(tensors), deadline, capacity)
        collectives = [rank.collective for rank in self.ranks]
        self.calls: list[CapturedCall] = on_all(
            self.ranks, lambda rank: collectives[rank].capturable(tensors[rank], op)
        )
        self.graphs = on_all(self.ranks, lambda rank: self.ranks[rank].gpu.captured(self.calls[rank].enqueue))

    def replayed(self) -> list[torch.Tensor]:
        def one(rank: int) -> torch.Tensor:
            self.ranks[rank].gpu.launch(self.graphs[rank])
            return self.calls[rank].result()

        return on_all(self.ranks, one)


@pytest.mark.parametrize(("name", "size"), [("balanced", 3), ("zen", 4), ("dense_ring", 2), ("sparcml", 4)])
def test_a_graph_sums_what_a_dense_tensor_holds_at_each_replay(name, size):
    tensors = [torch.zeros(UNITS, WIDTH) for _ in range(size)]
    graphs = Graphs(name, tensors, FixedCapacity(0.5, 1.0), "mean")
    assert all(not tensor.any() for tensor in tensors), "nothing has been summed yet"
    for seed, kind in enumerate(("random", "one_unit", "everything", "empty_on_all", "random")):
        inputs = gradients(dense_tensor, size, seed, kind)
        for tensor, given in zip(tensors, inputs, strict=True):
            tensor.copy_(given)
        results = graphs.replayed()
        assert same_bits([*cpu_sums(graphs.artifact, inputs, "mean"), *results])
        assert all(result is tensor for result, tensor in zip(results, tensors, strict=True))


def test_a_graph_sums_sparse_tensors_of_as_many_units_as_were_captured():
    size = 3
    tensors = gradients(sparse_tensor, size, 1)
    graphs = Graphs("balanced", tensors, FixedCapacity(0.3, 0.6))
    kept = []
    for seed in range(3):
        for rank, tensor in enumerate(tensors):
            generator = torch.Generator().manual_seed(10 * seed + rank)
            count = tensor._nnz()
            tensor._indices().copy_(torch.randint(0, UNITS, (1, count), generator=generator))
            tensor._values().copy_(torch.randn(count, WIDTH, generator=generator))
        kept.append((cpu_sums(graphs.artifact, tensors), graphs.replayed()))
    for wanted, found in kept:
        assert same_bits([*wanted, *found])


def test_without_room_a_replay_is_made_again():
    """Every rank replays again if one had no room; the input is unchanged, and the next replay succeeds."""
    tensors = [torch.zeros(UNITS, WIDTH) for _ in range(3)]
    graphs = Graphs("balanced", tensors, FixedCapacity(0.1, 0.3))
    for full in (True, False):
        for rank, tensor in enumerate(tensors):
            tensor.zero_()
            tensor[rank] = 1 + rank
            if full and rank == 1:
                tensor.fill_(5)
        wanted = cpu_sums(graphs.artifact, tensors)
        assert same_bits([*wanted, *graphs.replayed()])


def test_ordinary_calls_go_between_replays():
    """Calls and replays use the same group and the same pinned memory."""
    tensors = [torch.zeros(UNITS, WIDTH) for _ in range(2)]
    graphs = Graphs("balanced", tensors, FixedCapacity(0.5, 1.0))
    for seed in range(3):
        inputs = gradients(sparse_tensor, 2, seed)
        assert same_bits(
            [*cpu_sums(graphs.artifact, inputs), *run_all([rank.collective for rank in graphs.ranks], inputs)]
        )
        held = gradients(dense_tensor, 2, 7 + seed)
        for tensor, given in zip(tensors, held, strict=True):
            tensor.copy_(given)
        assert same_bits([*cpu_sums(graphs.artifact, held), *graphs.replayed()])


@pytest.mark.parametrize("held", [1, 3])
def test_a_graph_holds_several_calls(held):
    """Each call has its own tables in pinned memory, and another call goes before the next replay."""
    tensors = [[torch.zeros(UNITS, WIDTH) for _ in range(2)] for _ in range(held)]
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2, capacity=FixedCapacity(0.5, 1.0))
    calls = [on_all(ranks, lambda rank, of=of: ranks[rank].collective.capturable(of[rank])) for of in tensors]

    def captured(rank: int) -> int:
        return ranks[rank].gpu.captured(lambda: [call[rank].enqueue() for call in calls])

    def replayed(rank: int) -> list[torch.Tensor]:
        ranks[rank].gpu.launch(graphs[rank])
        return [call[rank].result() for call in calls]

    for _ in range(2):
        graphs = on_all(ranks, captured)
        for seed in range(2):
            inputs = [gradients(dense_tensor, 2, 5 * number + seed) for number in range(held)]
            for rank, number in itertools.product(range(2), range(held)):
                tensors[number][rank].copy_(inputs[number][rank])
            found = on_all(ranks, replayed)
            for number in range(held):
                assert same_bits([*cpu_sums(artifact, inputs[number]), *(results[number] for results in found)])
            run_all([rank.collective for rank in ranks], gradients(sparse_tensor, 2, seed))


def test_a_peer_that_does_not_replay_is_missed():
    """The error comes at the deadline, while the graphs live: NCCL would wait for these to end."""
    graphs = Graphs("balanced", [torch.zeros(UNITS, WIDTH) for _ in range(2)], FixedCapacity(0.5, 1.0), deadline=3)
    graphs.ranks[0].gpu.launch(graphs.graphs[0])
    started = time.monotonic()
    with pytest.raises(zenc.SynchronisationError, match=r"error\[deadline\]"):
        graphs.calls[0].result()
    assert time.monotonic() - started < 20
    with pytest.raises(zenc.SynchronisationError, match=r"error\[group-broken\]"):
        graphs.ranks[0].collective.all_reduce(torch.ones(4, 3))


def test_capacities():
    plan = zenc.compile("balanced", ranks=4).plan
    assert capacity_of(None, plan, 4) == LearnedCapacity() == capacity_of("learned", plan, 4)
    assert capacity_of("exact", plan, 4) is None
    for name in ("holders", "topk_a2a", "one_bit"):
        assert capacity_of(None, zenc.compile(name, ranks=4).plan, 4) is None
    assert capacity_of(0.1, plan, 4) == FixedCapacity(0.1, 0.4)
    assert capacity_of(0.5, plan, 4) == FixedCapacity(0.5, 1.0)
    assert capacity_of((0.1, 0.2), plan, 4) == FixedCapacity(0.1, 0.2)


BAD = [
    ("balanced", given, "bad-capacity") for given in (0.0, -1.0, 1.5, (0.2, 0.1), (0.1, 2.0), float("nan"), "0.1", ())
]


@pytest.mark.parametrize(
    ("scheme", "given", "id"), [*BAD, ("holders", 0.1, "no-capacity-mode"), ("topk_a2a", "learned", "no-capacity-mode")]
)
def test_shares_that_are_none_and_holders_are_refused(scheme, given, id):
    with pytest.raises(zenc.ZencError, match=rf"error\[{id}\]"):
        capacity_of(given, zenc.compile(scheme, ranks=4).plan, 4)


def test_calls_go_on_while_somebody_captures():
    """A capture on another stream and thread, in PyTorch's default mode ``global``, does not disturb calls."""
    ranks = emulated_ranks(zenc.compile("balanced", ranks=2), 2)
    inputs = gradients(sparse_tensor, 2, 3)
    with graphs_on(emulator()) as graphs:
        graphs.begin(mode=GLOBAL)
        graphs.set(0, 5, graphs.stream)
        found = run_all([rank.collective for rank in ranks], inputs)
        graphs.run(graphs.end())
        assert graphs.cells()[0] == 5
        graphs.close()
    assert same_bits([*cpu_sums(zenc.compile("balanced", ranks=2), inputs), *found])


def launched() -> int:
    return Libraries().calls("cuGraphLaunch", 0)


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize(("name", "size"), [("balanced", 3), ("zen", 4), ("dense_ring", 2), ("balanced", 1)])
def test_small_dense_calls_are_replayed(name, size, op):
    """The third call is, wherever the tensor lies; one that does not fit is made again, and the next one captured."""
    artifact = zenc.compile(name, ranks=size)
    ranks, replayed = loaded_ranks(artifact, size), []
    for turn, kind in enumerate(["random"] * 4 + ["everything"] * 4):
        inputs = gradients(dense_tensor, size, 0 if kind == "random" else turn, kind)
        tensors = [torch.zeros(UNITS, 2 * WIDTH)[:, ::2].copy_(each) if turn == 3 else each.clone() for each in inputs]
        before = launched()
        assert same_bits([*cpu_sums(artifact, inputs, op), *run_all(ranks, tensors, op)])
        replayed.append(launched() - before)
        jumps = name != "dense_ring" and kind != "random"
        assert [rank.stats["made_again"] for rank in ranks] == [jumps and turn == 4] * size
        assert ranks[0].stats["bytes_sent"] > 0 or size == 1
    assert replayed == ([0, 0, 1, 1, 1, 1, 1, 1] if name == "dense_ring" else [0, 0, 1, 1, 1, 0, 1, 1])


@pytest.mark.parametrize(("tensors", "replays"), [(3, 5), (1, 2)])
def test_tensors_of_one_shape_have_graphs_by_name(tensors, replays, monkeypatch):
    """Up to a sum of their sizes."""
    monkeypatch.setattr(cuda_graph, "MOST_TOGETHER", 4 * UNITS * WIDTH * tensors)
    ranks, before = loaded_ranks(zenc.compile("balanced", ranks=2), 2), launched()
    for seed in range(3):
        for name in ("a", "b", "c"):
            inputs = gradients(dense_tensor, 2, seed)
            calls = [partial(each.all_reduce, inputs[each.rank].clone(), name=name) for each in ranks]
            assert same_bits([sum(inputs), *on_all(calls, lambda rank, calls=calls: calls[rank]())])
    assert launched() - before == replays, "b and c have graphs one call sooner: a's first has learned for all"


@pytest.mark.parametrize("reason", ["a switch", "no memory"])
def test_where_one_rank_captures_nothing_none_replays(reason, monkeypatch):
    ranks, before = emulated_ranks(zenc.compile("balanced", ranks=2), 2, capacity=LearnedCapacity()), launched()
    if reason == "a switch":
        answers = itertools.chain([False], itertools.repeat(True))
        monkeypatch.setattr(cuda_graph, "is_on", lambda name: name == "ZENC_GPU_GRAPHS" and next(answers))
    for seed in range(4):
        ranks[1].gpu.left = 1 if reason == "no memory" and seed == 1 else None
        inputs = gradients(dense_tensor, 2, seed)
        run_all([rank.collective for rank in ranks], inputs)
        assert same_bits(inputs)
    assert launched() == before


def test_a_peer_that_does_not_call_is_missed_by_a_replay():
    """The error names it; the graph ends with the group, which is closed at once."""
    ranks = emulated_ranks(zenc.compile("balanced", ranks=2), 2, 1, LearnedCapacity())
    for _ in range(3):
        run_all([rank.collective for rank in ranks], gradients(dense_tensor, 2, 0))
    message = r"error\[deadline\]: the replay of call 4, which awaits rank 1, did not end within the deadline of 1 s"
    with pytest.raises(zenc.SynchronisationError, match=message):
        ranks[0].collective.all_reduce(torch.ones(UNITS, WIDTH))
    started = time.monotonic()
    assert all(rank.collective.communicator.close(5) for rank in ranks)
    assert time.monotonic() - started < 5


def captured_after(calls: int, rank: EmulatedRank) -> int:
    for _ in range(calls):
        rank.collective.all_reduce(torch.ones(4, 3))
    return rank.gpu.captured(lambda: rank.collective.all_reduce(torch.ones(4, 3)))


NO_ROOM, ROOM = None, FixedCapacity(1, 1)


@pytest.mark.parametrize(
    ("capacity", "call"),
    [
        (NO_ROOM, lambda rank: rank.collective.capturable(torch.zeros(4, 3))),
        (ROOM, lambda rank: rank.collective.capturable(torch.zeros(4, 6)[:, ::2])),
        (ROOM, lambda rank: rank.collective.capturable(torch.zeros(4, 3)).result()),
        (NO_ROOM, partial(captured_after, 0)),
        (LearnedCapacity(), partial(captured_after, 3)),
    ],
    ids=["exact mode", "gaps", "a result before a replay", "a call that waits", "a replay of its own"],
)
def test_what_no_graph_can_hold(capacity, call):
    (rank,) = emulated_ranks(zenc.compile("balanced", ranks=1), 1, capacity=capacity)
    with pytest.raises(zenc.TensorError, match=r"error\[not-capturable\]"):
        call(rank)
