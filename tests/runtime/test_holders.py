"""Balanced by holders: the right sums, for the least bytes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_units, sparse_tensor, wrong_sums
from tests.support.drawn import OP, gradients
from tests.support.fuzz import tried
from tests.support.holder_bytes import bound, zipf_holders
from tests.support.local import collectives, faults_of, ranks_of, run_all, sums

JOBS = "tests.runtime.jobs:"
COMMUNICATIONS = ("point_to_point then ring", "point_to_point", "ring", "hierarchy", "point_to_point then bruck")
AGGREGATIONS = ("incremental", "one_shot")
ANNOUNCES = ("", "announce: ring", "announce: directory", "announce: directory(from = 4) by bruck")
WIDTHS = (1, 2, 3, 64, 1000)


def scheme(communication: str = COMMUNICATIONS[0], aggregation: str = "incremental", more: str = "") -> str:
    return (
        f"scheme by_holders {{ communication: {communication} aggregation: {aggregation} "
        f"partition: parallelism balance: balanced by holders {more} }}"
    )


BY_HOLDERS = st.builds(scheme, *map(st.sampled_from, (COMMUNICATIONS, AGGREGATIONS, ANNOUNCES)))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("third", [0, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2))])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("communication", COMMUNICATIONS)
def test_every_kind_of_input(communication, aggregation, third):
    """1 to 9 ranks are tried, with dtypes, widths, units and kinds of input in rotation."""
    turn = 3 * third
    for size in range(1, 10):
        ranks = ranks_of(scheme(communication, aggregation), size)
        for kind in KINDS[(size + third) % 3 :: 3]:
            dtype, width = DTYPES[turn % 4], WIDTHS[turn % 5]
            units = (1, 2, 7, 64, 65, 257)[turn % 6]
            inputs = [sparse_tensor(kind, r, size, units, width, dtype, turn) for r in range(size)]
            assert same_units(sums(ranks, inputs), inputs)
            turn += 1


@settings(max_examples=tried(80), deadline=None)
@given(st.data(), BY_HOLDERS, st.integers(1, 9), OP)
def test_any_input_on_any_rank(data, text, size, op):
    assert faults_of(ranks_of(text, size), data.draw(gradients(size)), op) == []


@pytest.mark.parametrize("unit", ["auto", "row", "element"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_dense_tensors_in_place(aggregation, unit):
    for size in range(1, 10):
        kind, dtype = KINDS[size % len(KINDS)], DTYPES[size % len(DTYPES)]
        ranks = ranks_of(scheme(COMMUNICATIONS[size % 5], aggregation, f"unit: {unit}"), size)
        inputs = [dense_tensor(kind, r, size, 41, 3, dtype, size) for r in range(size)]
        given = [tensor.clone() for tensor in inputs]
        results = run_all(ranks, given)
        assert all(result is tensor for result, tensor in zip(results, given, strict=True))
        assert wrong_sums(results, inputs) == []


def test_views_that_are_not_contiguous_nor_aligned():
    ranks = ranks_of(scheme(more="unit: row"), 3)
    inputs = [dense_tensor("random", r, 3, 20, 6, torch.float32, 5) for r in range(3)]
    bases = [torch.zeros(20 * 6 + 1) for _ in inputs]
    for base, tensor in zip(bases, inputs, strict=True):
        base[1:] = tensor.flatten()
    assert wrong_sums(run_all(ranks, [base[1:].view(20, 6) for base in bases]), inputs) == []
    assert wrong_sums(run_all(ranks, [tensor.T.clone().T for tensor in inputs]), inputs) == []


def ones(*units: int) -> torch.Tensor:
    """Return a gradient [100, 8] of ones at ``units``."""
    return torch.sparse_coo_tensor([units], torch.ones(len(units), 8), (100, 8), check_invariants=False)


def messages(rank: zenc.Collective) -> dict[str, int]:
    return {name: phase["messages_sent"] for name, phase in rank.stats["phases"].items()}


def test_what_is_empty_is_not_sent():
    ranks = ranks_of(scheme("point_to_point"), 4)
    run_all(ranks, [sparse_tensor("empty_on_all", r, 4, 100, 8, torch.float32, 1) for r in range(4)])
    assert all(messages(rank) == {"announce": 3, "push": 0, "pull": 0} for rank in ranks)
    own = [ones(7 * r) for r in range(4)]
    run_all(ranks, own)
    assert all(messages(rank) == {"announce": 3, "push": 0, "pull": 3} for rank in ranks), "each owns what it holds"
    run_all(ranks, [ones(5, 9)] * 4)
    assert sorted(messages(rank)["push"] for rank in ranks) == [1, 1, 2, 2]


def test_one_rank_alone_sends_nothing():
    (rank,) = ranks_of(scheme(), 1)
    tensor = sparse_tensor("many_times", 0, 1, 100, 8, torch.float32, 1)
    assert wrong_sums([rank.all_reduce(tensor)], [tensor]) == []
    assert rank.stats["bytes_sent"] == 0 and rank.stats["units_out"] == 1


def rows_of(held: torch.Tensor, width: int) -> torch.Tensor:
    ids = held.nonzero().T
    return torch.sparse_coo_tensor(ids, torch.ones(ids.shape[1], width), (len(held), width), check_invariants=False)


@pytest.mark.parametrize("communication", COMMUNICATIONS[:2])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_the_busiest_rank_moves_the_least_bytes_there_can_be(size, communication):
    """The bytes of a call, with announcement and headers, are near those of the values that must move."""
    held = zipf_holders(size)
    ranks = collectives(zenc.compile_text(scheme(communication), ranks=size), size, deadline=120)
    run_all(ranks, [rows_of(torch.from_numpy(mine), 64) for mine in held])
    stats = [rank.stats for rank in ranks]
    least = bound(held) * 64 * 4
    for direction in ("bytes_sent", "bytes_received"):
        assert max(each[direction] for each in stats) / least < 1.01
    for each in stats:
        assert sum(phase["bytes_sent"] for phase in each["phases"].values()) == each["bytes_sent"]
        assert 0.002 < each["phases"]["announce"]["bytes_sent"] / least < 0.008


@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=[] if size in (2, 5, 9) else pytest.mark.slow) for size in range(1, 10)]
)
def test_on_real_processes(nine, size):
    texts = []
    for turn, communication in enumerate(COMMUNICATIONS, start=size):
        unit = ("auto", "row", "element")[turn % 3]
        texts.append(scheme(communication, AGGREGATIONS[turn % 2], f"unit: {unit}"))
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size)
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("size", [2, 4])
def test_the_bytes_of_real_processes(nine, size):
    held = zipf_holders(size)
    rows = [mine.nonzero()[0].tolist() for mine in held]
    stats = nine.run(JOBS + "statistics_of_rows", size=size, text=scheme(), rows=rows, units=held.shape[1], width=64)
    least = bound(held) * 64 * 4
    busiest = max(max(each["bytes_sent"], each["bytes_received"]) for each in stats)
    assert 1.0 <= busiest / least < 1.01


def test_calls_in_flight_never_mix(nine):
    text = scheme().replace("by_holders", "combination")
    results = nine.run(JOBS + "in_flight", size=4, text=text)
    assert all(result == results[0] for result in results)


# When things go wrong ---------------------------------------------------------------------------------------------


def failure(change: Callable[..., torch.Tensor | None], announced: bool = False, wait: float = 2) -> set[str]:
    """Return three ranks' ids of errors, if the first message with values, or an index set, is changed."""
    left = [1]

    def on_send(packet: torch.Tensor) -> torch.Tensor | None:
        is_set = bool(packet[8:12].any())  # messages of values have no segments
        return change(packet) if is_set == announced and left and left.pop() else packet

    ranks = collectives(zenc.compile_text(scheme("point_to_point"), ranks=3), 3, deadline=wait, on_send=on_send)
    inputs = [
        torch.sparse_coo_tensor([[3, 50, 70 + r]], torch.ones(3, 5), (100, 5), check_invariants=False) for r in range(3)
    ]
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(rank.all_reduce, tensor) for rank, tensor in zip(ranks, inputs, strict=True)]
    errors = [call.exception() for call in calls]
    assert not left and all(isinstance(error, zenc.ZencError | None) for error in errors)
    return {error.diagnostics[0].id for error in errors if error}


@pytest.mark.parametrize("byte", [0, 4, 12, 16, 24, 32, 40])
def test_a_changed_header_is_found_out(byte):
    def change(packet: torch.Tensor) -> torch.Tensor:
        packet[byte] ^= 0x10
        return packet

    assert failure(change) & {"corrupt-message", "different-calls"}


def test_ranks_that_do_not_agree_find_out():
    """A rank receives a changed index set with as many units, but other owners."""

    def change(packet: torch.Tensor) -> torch.Tensor:
        assert packet[56] == 3 and packet[64] == 3, "the first of three slots in a list"
        packet[64] = 2
        return packet

    assert failure(change, announced=True) & {"corrupt-message", "different-calls"}


def test_a_lost_message_is_missed():
    assert failure(lambda packet: None, wait=1) == {"deadline"}
