"""Publishing: updates are exact and short, and come to all ranks or to none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import local
from tests.support.fuzz import tried
from zenc.api import compile
from zenc.errors import SynchronisationError, TensorError
from zenc.tables.publish import Published, _Publishing
from zenc.tables.update import BITS_OF, update_kernels

INTEGERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}
DTYPES = sorted(BITS_OF, key=str)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(INTEGERS[BITS_OF[tensor.dtype]])


def changed(old: torch.Tensor, share: float, kind: str, seed: int) -> torch.Tensor:
    """Return ``old`` [n] with a share of its numbers moved a little, redrawn, or set to any bits."""
    generator = torch.Generator().manual_seed(seed)
    new, where = old.clone(), torch.rand(old.shape, generator=generator) < share
    n, view = int(where.sum()), bits(new)
    if kind == "near":
        view[where] += torch.randint(-2, 3, (n,), generator=generator).to(view.dtype)
    elif kind == "redrawn":
        new[where] = torch.randn(n, generator=generator).to(old.dtype)
    else:
        view[where] = torch.randint(-(1 << 62), 1 << 62, (n,), generator=generator).to(view.dtype)
    return new


@given(
    dtype=st.sampled_from(DTYPES),
    n=st.sampled_from([0, 1, 63, 64, 65, 1024, 5000]),
    share=st.sampled_from([0.0, 0.001, 0.05, 0.7, 1.0]),
    kind=st.sampled_from(["near", "redrawn", "any bits"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=tried(150), deadline=None)
def test_updates_are_exact(dtype, n, share, kind, seed):
    kernels, old = update_kernels(), torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)
    new = changed(old, share, kind, seed)
    update = kernels.encode(old, new)
    if update is None:
        return
    held, received = old.clone(), kernels.received(update.numel())
    received[: update.numel()] = update
    assert kernels.apply(received, update.numel(), held) == int((bits(old) != bits(new)).sum())
    assert torch.equal(bits(held), bits(new))
    assert update.numel() < new.nbytes


@given(st.binary(max_size=200), st.sampled_from(DTYPES))
@settings(max_examples=tried(150), deadline=None)
def test_bytes_of_strangers_change_all_or_nothing(data, dtype):
    kernels, held = update_kernels(), torch.zeros(100, dtype=dtype)
    received = kernels.received(len(data))
    received[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else received[:0]
    try:
        count = kernels.apply(received, len(data), held)
    except SynchronisationError as error:
        assert error.diagnostics[0].id == "corrupt-message"
        count = 0
    assert int((bits(held) != 0).sum()) == count


@pytest.mark.parametrize(("share", "most"), [(0.001, 1.75), (0.01, 1.25), (0.1, 0.8), (0.5, 0.45)])
def test_weights_that_move_by_one_take_their_entropy(share, most):
    """A change by one value of bfloat16 takes bytes within a tenth of the entropy of place and direction."""
    old = torch.randn(200_000).to(torch.bfloat16)
    where = torch.rand(old.shape) < share
    new = old.clone()
    bits(new)[where] += torch.tensor([-1, 1], dtype=torch.int16)[torch.randint(0, 2, (int(where.sum()),))]
    update = update_kernels().encode(old, new)
    assert update is not None
    assert update.numel() / int(where.sum()) < most


def publish(
    size: int, held: list[list[torch.Tensor]], new: Any, root: int, on_send: Any = lambda packet: packet
) -> Any:
    ranks = local.collectives(compile("balanced", ranks=size), size, on_send=on_send)
    calls = [
        _Publishing(rank.communicator, held[at], new if at == root else None, root, 20.0)
        for at, rank in enumerate(ranks)
    ]

    def outcome(call: _Publishing) -> Any:
        try:
            return call.run(1)
        except (TensorError, SynchronisationError) as error:
            return error.diagnostics[0].id

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(outcome, calls))


@pytest.mark.parametrize(("size", "root"), [(1, 0), (2, 1), (3, 2), (5, 1)])
def test_all_ranks_hold_what_the_root_has(size, root):
    """Tensors longer than a packet change a little, wholly, or not at all."""
    old = [torch.randn(300, 700).to(torch.bfloat16), torch.randn(90_000), torch.zeros(0), torch.randn(5)]
    new = [changed(old[0], 0.5, "redrawn", 1), torch.randn(90_000), torch.zeros(0), old[3].clone()]
    held = [[each.clone() for each in old] for _ in range(size)]
    done = publish(size, held, new, root)
    differing = int((bits(old[0]) != bits(new[0])).sum())
    assert done == [Published(300_005, 90_000 + differing, done[0].bytes)] * size
    assert all(torch.equal(each, wanted) for own in held for each, wanted in zip(own, new, strict=True))


def test_ranks_with_other_numbers_are_found_by_all():
    held = [[torch.zeros(100), torch.zeros(7)] for _ in range(3)]
    held[2][1][3] = 1.0
    assert publish(3, held, [torch.ones(100), torch.ones(7)], 0) == ["other-base"] * 3
    assert [int(each.sum()) for own in held for each in own] == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("new", "root", "ids"),
    [
        ([torch.ones(8)], 0, ["other-model", "call-failed"]),
        ([torch.ones(9, dtype=torch.int32)], 0, ["unsupported-dtype", "call-failed"]),
        (None, 0, ["wrong-root", "call-failed"]),
        ([torch.ones(9)], 2, ["wrong-root", "wrong-root"]),
    ],
)
def test_what_cannot_be_published(new, root, ids):
    held = [[torch.zeros(9)], [torch.zeros(9)]]
    assert publish(2, held, new, root) == ids
    assert all(torch.equal(own[0], torch.zeros(9)) for own in held)


def test_a_damaged_packet_is_found_before_anything_changes():
    def damage(packet: torch.Tensor) -> torch.Tensor:
        packet[len(packet) // 2] ^= 1
        return packet

    held = [[torch.zeros(9000)], [torch.zeros(9000)]]
    new = [changed(held[0][0], 0.1, "redrawn", 3)]
    done = publish(2, held, new, 0, damage)
    assert done[1] == "corrupt-message"
    assert not held[1][0].any()


def test_processes(nine):
    assert all(nine.run("tests.runtime.jobs:publishes", size=3))
