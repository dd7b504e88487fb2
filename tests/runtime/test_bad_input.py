"""Bad tensors and messages give an error by name, never a wrong sum."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import COMBINATIONS, FORMATS, same_bits, scheme_text
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from tests.support.packets import Damage, flipped, outcome, right
from zenc.errors import SynchronisationError, TensorError
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

BALANCED = scheme_text(*COMBINATIONS[-1])


def alone(text: str = BALANCED) -> zenc.Collective:
    return collectives(zenc.compile_text(text), 1)[0]


def refused(tensor: object, op: str = "sum", text: str = BALANCED) -> str:
    """Return the id of the error; the collective has to work as before."""
    collective = alone(text)
    with pytest.raises(TensorError) as caught:
        collective.all_reduce(tensor, op)
    assert collective.all_reduce(torch.ones(3)).tolist() == [1, 1, 1]
    return caught.value.diagnostics[0].id


def read_only() -> np.ndarray:
    array = np.ones(3, dtype=np.float32)
    array.flags.writeable = False
    return array


def test_a_tensor_without_values_is_not_told_to_move():
    with pytest.raises(TensorError) as caught:
        alone().all_reduce(torch.zeros(3, device="meta"))
    assert ".cpu()" not in caught.value.diagnostics[0].help and "to_empty" in caught.value.diagnostics[0].help


@pytest.mark.parametrize(("op", "expected"), [(dist.ReduceOp.SUM, 8), (dist.ReduceOp(dist.ReduceOp.AVG), 4)])
def test_operations_by_their_names_in_torch(op, expected):
    pair = collectives(zenc.compile_text(BALANCED), 2)
    found = run_all(pair, [torch.full((3,), 4.0) for _ in pair], op)
    assert [tensor.tolist() for tensor in found] == [[expected] * 3] * 2


@pytest.mark.parametrize("op", ["max", "", "SUM", None, 3, dist.ReduceOp.MAX])
def test_operations(op):
    assert refused(torch.zeros(3), op) == "unknown-operation"


def empty(shape: tuple[int, ...], sparse_dim: int = 1) -> torch.Tensor:
    indices = torch.zeros(sparse_dim, 0, dtype=torch.long)
    return torch.sparse_coo_tensor(indices, torch.zeros(0, *shape[sparse_dim:]), shape, check_invariants=False)


REFUSED: dict[str, list[object]] = {
    "not-a-tensor": [None, 3.0, [1.0, 2.0], "tensor", torch.Size([3]), np.ones(3)[::-1], read_only(), np.array(["a"]),
                     np.broadcast_to(np.ones(1), (3,))],
    "unsupported-dtype": [np.ones(3, dtype=np.complex64), *(
        each for dtype in (torch.bool, torch.complex64)
        for each in (torch.zeros(3, dtype=dtype), torch.zeros(3, 2, dtype=dtype).to_sparse()))],
    "unsupported-device": [torch.zeros(3, device="meta")],
    "unsupported-layout": [torch.eye(3).to_sparse_csr(), torch.eye(4).to_sparse_bsr((2, 2))],
    "tensor-too-large": [empty((1 << 62,)), empty((1 << 61, 2))],
    "unit-out-of-range": [torch.sparse_coo_tensor(torch.tensor(ids), torch.ones(1), (5, 3), check_invariants=False)
                          for ids in ([[1], [7]], [[-1], [2]], [[5], [-1]], [[0], [-1]])],
}  # fmt: skip
"""Id of the error -> what can't be summed; an index beyond its row must not pass for one of the next."""


@pytest.mark.one_in(1)
@pytest.mark.parametrize(("tensor", "id"), [(each, id) for id, several in REFUSED.items() for each in several])
def test_what_can_not_be_summed(tensor, id):
    assert refused(tensor) == id


@pytest.mark.parametrize("unit", ["auto", "row", "element"])
@pytest.mark.parametrize("index", [-1, 5, 1 << 40, -(1 << 62)])
def test_indices_out_of_range(index, unit):
    indices = torch.tensor([[0, index, 4]])
    tensor = torch.sparse_coo_tensor(indices, torch.ones(3, 2), (5, 2), check_invariants=False)
    assert refused(tensor, text=scheme_text(*COMBINATIONS[-1], unit=unit)) == "unit-out-of-range"


def test_tensors_without_elements():
    for tensor in (torch.zeros(0), torch.zeros(0, 3), torch.zeros(3, 0)):
        assert alone().all_reduce(tensor) is tensor
        sparse = tensor.to_sparse(1)
        assert alone().all_reduce(sparse).shape == tensor.shape


def test_another_shape_on_another_rank():
    ranks = collectives(zenc.compile_text(BALANCED, ranks=3), 3, deadline=0.5)
    with pytest.raises(SynchronisationError):
        run_all(ranks, [torch.ones(10), torch.ones(11), torch.ones(10)])
    for rank in ranks:
        with pytest.raises(SynchronisationError, match="group-broken"):
            rank.all_reduce(torch.ones(10))


@pytest.mark.parametrize("scheme", ["balanced", "dense_ring", "holders", "topk_a2a"])
@pytest.mark.parametrize("call", ["all_reduce", "reduce_scatter", "all_gather"])
def test_another_name_on_another_rank(scheme, call):
    """A rank that leaves out one of several equal calls gets an error, and shifts no sums."""
    if call != "all_reduce" and scheme in ("topk_a2a", "holders"):
        pytest.skip("it has no halves")
    ranks = collectives(zenc.compile(scheme, ranks=2), 2, deadline=5)
    gradients = [torch.ones(10, 2)] * 2
    if call == "all_gather":
        gradients = [
            (own * rank.owned((10, 2))[:, None]).to_sparse(1) for own, rank in zip(gradients, ranks, strict=True)
        ]
    with ThreadPoolExecutor(2) as pool:
        works = [
            pool.submit(getattr(rank, call), gradient, name=name)
            for rank, gradient, name in zip(ranks, gradients, ("first", "second"), strict=True)
        ]
    for work, name in zip(works, ("first", "second"), strict=True):
        with pytest.raises(SynchronisationError, match=rf"(?s)different-calls.*name.*at '{name}', of shape \(10, 2\)"):
            work.result()


def test_two_threads_in_calls_at_once():
    """A rank says so, rather than add one thread's tensor to that of another thread of a peer."""
    first = collectives(zenc.compile("balanced", ranks=2), 2, deadline=0.5)[0]
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(first.all_reduce, torch.ones(10))
        while not first.communicator.worker.caller:
            pass
        with pytest.raises(SynchronisationError, match=r"different-calls.*two threads"):
            first.all_reduce(torch.ones(10))
        with pytest.raises(SynchronisationError, match=r"group-broken.*\n.*two threads"):
            waits.result()


SIZE = 3
SCHEMES = [scheme_text(*combination, push) for combination in COMBINATIONS for push in FORMATS]


CALL_AT = 24
"""The place in a message of the call and the tensor: see ``zenc.wire.structs``."""
FORMAT_AT, ORIGIN_AT, COUNT_AT = (MESSAGE_HEADER_BYTES + at for at in (4, 5, 8))


def compiled(text: str) -> zenc.Artifact:
    return zenc.compile_text(text, ranks=SIZE)


def ids_of(place: int) -> tuple[str, ...]:
    """Return the ids of errors for a header that is wrong at ``place``."""
    if CALL_AT <= place < MESSAGE_HEADER_BYTES:
        return ("different-calls",)
    of_body = place == FORMAT_AT or place >= COUNT_AT
    return ("corrupt-message", "corrupt-segment") if of_body else ("corrupt-message",)


@settings(max_examples=tried(50), deadline=None)
@given(
    text=st.sampled_from(SCHEMES),
    turn=st.integers(0, 5),
    place=st.integers(0, MESSAGE_HEADER_BYTES + SEGMENT_HEADER_BYTES - 1),
    flip=st.integers(1, 255),
)
def test_a_byte_of_a_header_that_changes(text, turn, place, flip):
    damage = Damage(turn, flipped(place, flip))
    found = outcome(compiled(text), SIZE, damage, *ids_of(place))
    if found is not None:
        assert not damage.done or place >= MESSAGE_HEADER_BYTES
        assert same_bits([*right(compiled(text), SIZE), *found])


@pytest.mark.parametrize("text", SCHEMES[::30])
@pytest.mark.parametrize("byte", range(8))
def test_a_message_that_claims_another_size(text, byte):
    """Claimed sizes go beyond any memory."""
    for place in (8, 16):  # the number of segments, and of bytes
        if place + byte < 24 and (place > 8 or byte < 4):
            damage = Damage(0, flipped(place + byte, 0x41))
            assert outcome(compiled(text), SIZE, damage, "corrupt-message") is None


@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if c[1] == "one_shot"])
@pytest.mark.parametrize("turn", [0, 3])
def test_a_contribution_under_another_name(combination, turn):
    """The header of one-shot aggregation names the contributor of a segment, by which sums are ordered."""
    artifact = compiled(scheme_text(*combination))
    for flip in (1, 2, 3, 128):
        found = outcome(artifact, SIZE, Damage(turn, flipped(ORIGIN_AT, flip)), "corrupt-message")
        if found is not None:
            assert same_bits([*right(artifact, SIZE), *found])


@pytest.mark.parametrize("text", SCHEMES[::10])
def test_a_packet_that_is_lost(text):
    assert outcome(compiled(text), SIZE, Damage(1, lambda _: None)) is None


@settings(max_examples=tried(30), deadline=None)
@given(text=st.sampled_from(SCHEMES), turn=st.integers(0, 11), rubbish=st.binary(min_size=1, max_size=300))
def test_rubbish(text, turn, rubbish):
    damage = Damage(turn, lambda _: torch.frombuffer(bytearray(rubbish), dtype=torch.uint8))
    found = outcome(compiled(text), SIZE, damage, "corrupt-message")
    assert found is None or not damage.done
