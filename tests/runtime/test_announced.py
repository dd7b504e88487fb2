"""Announced calls: index sets travel before values, and a wrong announcement costs time but never a wrong sum."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.runtime.jobs import DEADLINE, bits
from tests.runtime.test_holders import AGGREGATIONS, COMMUNICATIONS, WIDTHS, scheme
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor
from tests.support.drawn import OP, SPARSE, gradients
from tests.support.emulated_gpu import EmulatedRank, emulated_ranks
from tests.support.fuzz import tried
from tests.support.local import collectives, ranks_of, run_all, run_each
from tests.support.refusals import refusals
from zenc.errors import TensorError


def several(group: dist.ProcessGroup, shared: bool) -> tuple[list[str], list[str], list[bool], list[int]]:
    """Sum four tables; return fingerprints of usual sums, of announced ones, which were repeated, and bytes sent.

    Rank 1 announces a row too many of the second; the last is the first, in a usual call behind all others.
    """
    rank, size = group.rank(), group.size()
    collective = zenc.load("holders", group, deadline=DEADLINE, shared_memory=shared)
    kinds = ("random", "everything", "empty_on_some")
    tables = [sparse_tensor(kind, rank, size, 3000, 17, torch.float32, 5) for kind in kinds]
    tables.append(tables[0])
    whole = [bits(collective.all_reduce(table)) for table in tables]
    told = []
    for number, table in enumerate(tables[:3]):
        ids = table._indices()[0]
        told.append(collective.announce(ids[:-1] if (number, rank) == (1, 1) else ids, table.shape, name=kinds[number]))
    works = {}
    for number in (2, 0, 1, 3):
        announced = told[number] if number < 3 else None
        works[number] = collective.all_reduce(tables[number], async_op=True, announced=announced)
    found = [bits(works[number].wait()) for number in range(4)]
    stats = [works[number].stats for number in range(4)]
    return whole, found, [each["made_again"] for each in stats], [each["bytes_sent"] for each in stats]


def announced(ranks: list[zenc.Collective], ids: list[torch.Tensor], shape: torch.Size) -> list[Any]:
    return run_each([partial(rank.announce, shape=shape) for rank in ranks], ids)


def summed(
    ranks: list[zenc.Collective], inputs: list[torch.Tensor], announcements: list[Any], **options: Any
) -> list[torch.Tensor]:
    given = zip(ranks, announcements, strict=True)
    return run_each([partial(rank.all_reduce, announced=each, **options) for rank, each in given], inputs)


def ids_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._indices()[0] if tensor.is_sparse else tensor.any(dim=1).nonzero()[:, 0]


def wrong(ids: torch.Tensor, how: str, units: int) -> torch.Tensor:
    """Draw ids that differ from a gradient's: too many, too few, none, all; or the right ones."""
    return {
        "right": ids.flip(0),
        "more": torch.cat((ids, torch.tensor([0, units - 1]))),
        "fewer": ids[1:],
        "none": ids[:0],
        "all": torch.arange(units),
    }[how]


@settings(max_examples=tried(40), deadline=None)
@given(
    data=st.data(),
    communication=st.sampled_from(COMMUNICATIONS),
    aggregation=st.sampled_from(AGGREGATIONS),
    size=st.integers(1, 6),
    hows=st.lists(st.sampled_from(["right", "right", "right", "more", "fewer", "none", "all"]), min_size=6, max_size=6),
    op=OP,
)
def test_sums_are_those_of_a_call_without(data, communication, aggregation, size, hows, op):
    ranks = ranks_of(scheme(communication, aggregation), size)
    inputs = data.draw(gradients(size, width=st.sampled_from(WIDTHS), dense=SPARSE))
    expected = run_all(ranks, inputs, op)
    told = [wrong(ids_of(tensor), hows[r], len(tensor)) for r, tensor in enumerate(inputs)]
    right = all(set(ids.tolist()) == set(ids_of(tensor).tolist()) for ids, tensor in zip(told, inputs, strict=True))
    found = summed(ranks, inputs, announced(ranks, told, inputs[0].shape), op=op)
    assert same_bits([expected[0], *found])
    assert [rank.stats["made_again"] for rank in ranks] == [not right] * size


def test_dense_rows_and_an_announcement_for_several_calls():
    ranks, size = ranks_of(scheme(), 3), 3
    inputs = [dense_tensor("random", r, size, 90, 7, torch.float32, 1) for r in range(size)]
    expected = run_all(ranks, [tensor.clone() for tensor in inputs], rows=True)
    told = announced(ranks, [ids_of(tensor) for tensor in inputs], inputs[0].shape)
    first, second = (summed(ranks, [tensor.clone() for tensor in inputs], told, rows=True) for _ in range(2))
    assert all(torch.equal(result, expected[0]) for result in (*first, *second))
    phases = ranks[0].stats["phases"]
    assert set(phases) == {"push", "pull"}, "what the announcement took was counted by the first call"
    nothing = torch.zeros(0, 4)
    empty = announced(ranks, [torch.empty(0, dtype=torch.int64)] * size, nothing.shape)
    assert [result.shape for result in summed(ranks, [nothing] * size, empty, rows=True)] == [(0, 4)] * size


def test_bytes_are_those_of_a_call_without():
    """Only headers are added, of empty messages between ranks that share no row or own none."""
    ranks, size = ranks_of(scheme(), 4), 4
    inputs = [sparse_tensor("random", r, size, 400, 16, torch.float32, 3) for r in range(size)]
    run_all(ranks, inputs)
    plain = [rank.stats for rank in ranks]
    summed(ranks, inputs, announced(ranks, [ids_of(tensor) for tensor in inputs], inputs[0].shape))
    for before, after in zip(plain, (rank.stats for rank in ranks), strict=True):
        assert list(after["phases"]) == list(before["phases"]) == ["announce", "push", "pull"]
        assert {name: each["bytes_sent"] for name, each in after["phases"].items()} == {
            name: each["bytes_sent"] for name, each in before["phases"].items()
        }
    none = sparse_tensor("empty_on_all", 0, size, 400, 16, torch.float32, 3)
    summed(ranks, [none] * size, announced(ranks, [ids_of(none)] * size, none.shape))
    phases = ranks[0].stats["phases"]
    assert [(phases[name]["bytes_sent"], phases[name]["messages_sent"]) for name in ("push", "pull")] == [(144, 3)] * 2


@pytest.mark.parametrize("shared", [True, False])
def test_several_tables_under_way_among_processes(four, shared):
    """Tables are announced in one order and summed in another, one of them announced wrongly on one rank."""
    for whole, found, made_again, sent in four.run("tests.runtime.test_announced:several", shared=shared):
        assert found == whole
        assert made_again == [False, True, False, False]
        assert sent[0] == sent[3], "bytes of a table that was announced, and of it in a usual call"


def test_a_rank_that_announced_nothing_is_waited_for_in_vain():
    """The rank exchanges index sets, for which the others do not come; nobody gets a sum."""
    ranks = collectives(zenc.compile("holders", ranks=2), 2, deadline=2)
    gradient = torch.eye(5).to_sparse(1)
    told = announced(ranks, [torch.arange(5)] * 2, gradient.shape)
    with pytest.raises(zenc.SynchronisationError, match=r"error\[deadline\]"):
        run_each([partial(ranks[0].all_reduce, announced=told[0]), ranks[1].all_reduce], [gradient] * 2)


def refused(call: Any) -> str:
    return refusals(TensorError, call)[0].id


def test_what_can_not_be_announced():
    rank = ranks_of(scheme(), 1)[0]
    ids, gradient = torch.arange(4), torch.eye(4).to_sparse(1)
    told = rank.announce(ids, gradient.shape)
    other = collectives(zenc.compile("holders", ranks=1), 1)[0]
    assert repr(told).startswith("<zenc.Announcement of (4, 4)")
    assert refused(lambda: other.all_reduce(gradient, announced=told)) == "other-announcement"
    assert refused(lambda: rank.all_reduce(torch.eye(5).to_sparse(1), announced=told)) == "other-announcement"
    assert refused(lambda: rank.all_reduce(torch.eye(4), announced=told)) == "other-announcement", "of elements"
    assert refused(lambda: rank.announce(ids, (3, 4))) == "unit-out-of-range"
    assert refused(lambda: rank.announce(-ids, (4, 4))) == "unit-out-of-range"
    assert refused(lambda: rank.announce(ids / 2, (4, 4))) == "unsupported-dtype"
    balanced = collectives(zenc.compile("balanced", ranks=1), 1)[0]
    assert refused(lambda: balanced.announce(ids, (4, 4))) == "not-announced"
    elements = ranks_of(scheme(more="unit: element"), 1)[0]
    assert refused(lambda: elements.announce(ids, (4, 4))) == "not-announced"


HOWS = ("right", "more", "fewer", "none", "all", "right", "right")


def emulated_of(size: int, text: str = "") -> list[EmulatedRank]:
    return emulated_ranks(zenc.compile_text(text or scheme(), ranks=size), size)


@pytest.mark.parametrize("number", range(12))
def test_sums_of_gpus_are_those_of_a_call_without(number):
    size = 1 + number % 4
    text = scheme(COMMUNICATIONS[number % len(COMMUNICATIONS)], AGGREGATIONS[number // 2 % len(AGGREGATIONS)])
    gpus, cpus = (
        [rank.collective for rank in emulated_of(size, text)],
        collectives(zenc.compile_text(text, ranks=size), size),
    )
    for turn, kind in enumerate(KINDS[number % 3 :: 3]):
        make, rows = (dense_tensor, True) if (number + turn) % 3 == 2 else (sparse_tensor, False)
        units, width, dtype = (1, 63, 300)[(number + turn) % 3], WIDTHS[(number + turn) % len(WIDTHS)], DTYPES[turn % 4]
        inputs = [make(kind, rank, size, units, width, dtype, number) for rank in range(size)]
        hows = ["right"] * size if turn == 0 else [HOWS[(number + turn + rank) % 7] for rank in range(size)]
        told = [wrong(ids_of(tensor), how, units) for tensor, how in zip(inputs, hows, strict=True)]
        right = all(set(i.tolist()) == set(ids_of(tensor).tolist()) for i, tensor in zip(told, inputs, strict=True))
        expected = run_all(cpus, [tensor.clone() for tensor in inputs], "mean", rows=rows)
        shape = inputs[0].shape
        found = summed(gpus, [tensor.clone() for tensor in inputs], announced(gpus, told, shape), op="mean", rows=rows)
        assert same_bits([*expected, *found]), (kind, hows)
        assert [rank.stats["made_again"] for rank in gpus] == [not right] * size


def test_an_announcement_for_several_calls():
    size = 3
    gpus = [rank.collective for rank in emulated_of(size)]
    inputs = [sparse_tensor("random", rank, size, 200, 7, torch.float32, 1) for rank in range(size)]
    expected = run_all(gpus, inputs)
    whole = [rank.stats["phases"] for rank in gpus]
    told = announced(gpus, [ids_of(tensor) for tensor in inputs], inputs[0].shape)
    first = summed(gpus, inputs, told)
    counted = [rank.stats["phases"] for rank in gpus]
    for before, after in zip(whole, counted, strict=True):
        for phase in ("push", "pull"):
            assert after[phase]["formats_sent"] == before[phase]["formats_sent"]
        assert list(after) == ["announce", "push", "pull"]
        assert after["announce"]["formats_sent"] == before["announce"]["formats_sent"]
    second = summed(gpus, inputs, told)
    assert same_bits([*expected, *first, *second]) and set(gpus[0].stats["phases"]) == {"push", "pull"}


def waits(ranks: list[EmulatedRank], call: Any) -> int:
    before = ranks[0].gpu.calls("wait")
    call()
    return ranks[0].gpu.calls("wait") - before


def test_the_host_waits_once():
    """A call of rows knows all sizes at its start, while whole calls wait twice more to learn them."""
    size = 4
    ranks = emulated_of(size)
    gpus = [rank.collective for rank in ranks]
    inputs = [sparse_tensor("random", rank, size, 200, 7, torch.float32, 1).coalesce() for rank in range(size)]
    told = announced(gpus, [ids_of(tensor) for tensor in inputs], inputs[0].shape)
    for _ in range(2):  # the first call asks for its memory piece by piece
        whole, after = waits(ranks, partial(run_all, gpus, inputs)), waits(ranks, partial(summed, gpus, inputs, told))
    assert (whole, after) == (3, 1)


def test_memory_of_an_announcement_is_given_back():
    (rank,) = emulated_of(1)
    released: list[int] = []
    rank.collective.all_reduce(gradient := torch.eye(5).to_sparse(1))
    library = rank.collective.backend_on(torch.device("cpu"))._loaded.library
    release = library.release_agreed
    library.release_agreed = lambda agreed: (released.append(agreed), release(agreed))
    told = rank.collective.announce(torch.arange(5), gradient.shape)
    assert same_bits([gradient.coalesce(), rank.collective.all_reduce(gradient, announced=told)]) and not released
    del told
    assert len(released) == 1
    library.release_agreed = release
