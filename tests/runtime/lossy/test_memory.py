"""Lossy calls as their interpreter plays them: memory at the end, and the order that overlaps work with the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import zenc
from tests.support.local import LocalTransport, collectives, run_all
from tests.support.shipped import plan_of_shipped
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.memory_model import BUFFERS, MemoryModel
from zenc.gradients.spec import GradientSpec
from zenc.plan.unroll import expand
from zenc.runtime.call.collective import Collective
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.lossy.coded_segments import CodedOps
from zenc.runtime.lossy.cpu_interpreter import LossyInterpreter
from zenc.runtime.lossy.lossy_collective import LossyCollective
from zenc.topology.shapes import ring
from zenc.verify.proof import prove

RANKS, UNITS = 4, 65_536


def storages(keep: object) -> Iterator[tuple[int, int]]:
    """Yield the address and the bytes of all memory that ``keep`` owns."""
    if isinstance(keep, torch.Tensor):
        yield keep.untyped_storage().data_ptr(), keep.untyped_storage().nbytes()
    elif isinstance(keep, tuple):
        for each in keep:
            yield from storages(each)


def predicted(name: str) -> list[dict[str, int]]:
    """Return the bytes of each rank's buffers when the call has ended."""
    plan = plan_of_shipped(name)
    rounds = expand(plan, RANKS)
    ledger = MemoryModel(plan, rounds, expected_bytes(plan, RANKS, GradientSpec(UNITS, 1, "f32", 1.0)))
    prove(plan, rounds, ledger.observe)
    peak = ledger.capacity(ring(RANKS)).needs
    ends = zip(ledger.held.tolist(), ledger.encoded.sum(axis=1).tolist(), peak, strict=True)
    return [
        {**dict(zip(BUFFERS, most.buffers, strict=True)), "at the end": held + encoded} for held, encoded, most in ends
    ]


def bytes_of(call: LossyInterpreter) -> int:
    """Return the memory of the segments of ``call``; messages in the room for first packets count their own bytes."""
    room = dict(storages(tuple(buffer for buffers, _ in call.inbox.room.values() for buffer in buffers)))
    own, in_room = dict[int, int](), 0
    for segment in call.held.values():
        of = dict(storages((segment.keep, segment.frame.buffer if segment.frame else None)))
        own |= {at: size for at, size in of.items() if at not in room}
        in_room += segment.bytes_of_values(call.ops.unit_bytes) if of.keys() & room.keys() else 0
    return sum(own.values()) + in_room


def kept_bytes(rank: Collective) -> int:
    assert isinstance(rank, LossyCollective)
    (state,) = rank.keeper.store.states()
    return sum(each.nbytes for of in (state.now, state.next) for each in of.all if each is not None)


@pytest.mark.parametrize("name", ["topk_a2a", "one_bit", "qsgd", "oscar_hw", "dgc", "oscar_sw"])
def test_segments_and_residuals(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[int, int] = {}
    expand_into = LossyInterpreter.expand_into

    def watched(self: LossyInterpreter, tensor: torch.Tensor) -> None:
        held[self.program.rank] = bytes_of(self)
        expand_into(self, tensor)

    monkeypatch.setattr(LossyInterpreter, "expand_into", watched)
    ranks = collectives(zenc.compile(name, ranks=RANKS), RANKS)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        run_all(ranks, list(torch.randn(RANKS, UNITS, generator=generator)), name="w")
    plan = ranks[0].artifact.plan
    for rank, buffers in enumerate(predicted(name)):
        assert buffers["residuals"] == (kept_bytes(ranks[rank]) if plan.kept else 0)
        if plan.warmup is None:  # else the first calls send more
            assert buffers["at the end"] == pytest.approx(held[rank], rel=0.1)


SIZE = 3
FIRST = ["encode 1", "send 1", "encode 2", "send 2", "wait 2", "wait 1"]
SECOND = ["encode 0", "send 1", "send 2", "write 0", "wait 2", "write 2", "wait 1", "write 1"]


@pytest.mark.parametrize(("scheme", "order"), [("one_bit", FIRST + SECOND), ("topk_a2a", None)])
def test_parts_leave_as_they_are_made_and_are_written_as_they_come(
    scheme: str, order: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a ring rank 0 gets the last part last, and has written all others before."""
    events: list[str] = []

    def watch(of: type, name: str, said: Any) -> None:
        real = getattr(of, name)

        def watched(self: Any, *given: Any, **more: Any) -> Any:
            if said(self, *given):
                events.append(said(self, *given))
            return real(self, *given, **more)

        monkeypatch.setattr(of, name, watched)

    monkeypatch.setattr(LocalTransport, "whole", lambda self, peer: True)  # short messages, so that it is true
    watch(CodedOps, "encode", lambda _, segment, spec, *more: "" if spec.origin else f"encode {spec.part}")
    watch(LocalTransport, "send", lambda self, peer, *more: "" if self.rank else f"send {peer}")
    watch(Channel, "wait", lambda self, pending, peer, *more: "" if self.transport.rank else f"wait {peer}")
    watch(
        LossyInterpreter,
        "_write",
        lambda self, number, **more: "" if self.rank else f"write {self.held[number].part}",
    )
    ranks = collectives(zenc.compile(scheme, ranks=SIZE), SIZE)
    gradients = [torch.randn(1000, generator=torch.Generator().manual_seed(rank)) for rank in range(SIZE)]
    found = run_all(ranks, gradients, "mean", name="w")
    assert all(torch.equal(found[0], other) for other in found)
    if order is None:
        assert events[-1].startswith("write") and events[-2] == "wait 2" and events.count("write 0") == 1
        assert [event for event in events[:-2] if event.startswith("write")] == events[-4:-2]
    else:
        assert events == order
