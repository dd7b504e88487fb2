"""Lossy calls as they are played: memory, the order that overlaps work with the wire, contributions of GPUs."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import zenc
from tests.runtime.lossy.test_conservation import scheme
from tests.support.emulated_gpu import EmulatedGpu
from tests.support.local import LocalTransport, collectives, run_all
from tests.support.shipped import plan_of_shipped
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.memory_model import BUFFERS, MemoryModel
from zenc.gradients.spec import GradientSpec
from zenc.plan.unroll import expand
from zenc.runtime.call.collective import Collective
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.lossy.coded_segments import CodedOps
from zenc.runtime.lossy.cpu_contribution import CpuContribution
from zenc.runtime.lossy.cpu_interpreter import LossyInterpreter
from zenc.runtime.lossy.gpu_contribution import GpuContribution
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.kernels import compression_kernels
from zenc.runtime.lossy.lossy_collective import LossyCollective
from zenc.runtime.lossy.residual_store import FlatState, NamedPiece
from zenc.runtime.lossy.supports import Draw
from zenc.scheme.compression import (
    Above,
    Bisection,
    RandomEach,
    Reused,
    Sampled,
    Selection,
    Top,
    TopOfBlocks,
    TopOfParts,
)
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
        LossyInterpreter, "_write", lambda self, number, **more: "" if self.rank else f"write {self.held[number].part}"
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


SELECTIONS: dict[str, tuple[Selection, ...]] = {
    "all": (), "top": (Top(0.03),), "half": (Top(0.5),), "sampled": (Top(0.03, Sampled(0.2)),),
    "reused": (Top(0.03, Reused(2)),), "bisection": (Top(0.03, Bisection(9)),), "parts": (TopOfParts(0.03),),
    "blocks": (TopOfBlocks(0.1, 48),), "large blocks": (TopOfBlocks(0.02, 9000),), "above": (Above(2.0),),
    "random": (RandomEach(0.1, 5),), "several": (Above(2.5), TopOfParts(0.05), TopOfBlocks(0.02, 100), Top(0.02)),
    "several more": (Top(0.02, Sampled(0.2)), Top(0.02, Bisection(9)), RandomEach(0.1, 5), Top(0.02, Reused(2))),
}  # fmt: skip
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PERMUTED = torch.randperm(10007, generator=torch.Generator().manual_seed(1))


@cache
def on_gpu() -> GpuCompression:
    return GpuCompression(EmulatedGpu(0), zenc.compile_text(scheme("top(0.1)"), target="cuda", arch=[]), 60.0)


def drawn(kind: str, units: int, width: int, dtype: str, seed: int) -> torch.Tensor:
    values = torch.randn(units, width, generator=torch.Generator().manual_seed(seed))
    if kind == "ties":
        values = (values * 2).round()
    if kind == "zeros":
        values[values.abs() < 2] = 0.0
    return values.to(DTYPES[dtype])


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize(
    ("units", "width", "dtype", "kind"),
    [(10007, 1, "f32", "normal"), (3000, 1, "bf16", "ties"), (700, 5, "f16", "zeros"), (2000, 1, "f32", "zeros")],
)
def test_contributions_are_those_of_the_cpu(name: str, units: int, width: int, dtype: str, kind: str) -> None:
    selections = SELECTIONS[name]
    third, pieces = units // 3, (NamedPiece("w", (units, width)),)
    permuted = [PERMUTED[units > PERMUTED][:third], PERMUTED[units > PERMUTED][third:]]
    parts = permuted if kind == "ties" else [range(third), range(third, third), range(third, units)]
    cpu, gpu = FlatState(pieces, torch.device("cpu")), FlatState(pieces, torch.device("cpu"))
    for step in range(2):
        draw = Draw(step, 77 + step, 1, parts)
        wanted, gradient = drawn(kind, units, width, dtype, step), drawn(kind, units, width, dtype, step)
        total, own = (state.room("residual").view_as(gradient) for state in (gpu, cpu))
        known = CpuContribution(compression_kernels(), wanted, cpu, own).contribute(0.5, selections, draw)
        found = GpuContribution(on_gpu(), gradient, gpu, total).contribute(0.5, selections, draw)
        assert torch.equal(gradient, wanted) and gpu.threshold == cpu.threshold
        assert torch.equal(gpu.next.residual, cpu.next.residual) and torch.equal(gpu.next.velocity, cpu.next.velocity)
        assert found.finite and known.finite
        assert found.gradient == pytest.approx(known.gradient) and found.residual == pytest.approx(known.residual)
        cpu.commit(), gpu.commit()


def picked(work: GpuContribution) -> torch.Tensor:
    """Return the contribution: values that have bits, or all of the gradient."""
    if work.taken is None:
        return work.gradient
    bits = torch.from_numpy(np.unpackbits(work.taken.numpy(), bitorder="little")[: work.gradient.numel()])
    return torch.where(bits.view(-1, 1) != 0, work.gradient, torch.zeros_like(work.gradient))


@pytest.mark.parametrize("name", ["top", "half", "sampled", "reused", "parts", "large blocks", "above"])
@pytest.mark.parametrize(("dtype", "kind"), [("f32", "normal"), ("f16", "normal"), ("f32", "ties"), ("bf16", "zeros")])
def test_bits_say_what_is_taken(name: str, dtype: str, kind: str) -> None:
    units, selections = 70_001, SELECTIONS[name]
    parts, pieces = [range(9000), range(9000, 9000), range(9000, units)], (NamedPiece("w", (units, 1)),)
    cpu, gpu = FlatState(pieces, torch.device("cpu")), FlatState(pieces, torch.device("cpu"))
    for step in range(2):
        draw = Draw(step, 77 + step, 1, parts)
        wanted, gradient = drawn(kind, units, 1, dtype, step), drawn(kind, units, 1, dtype, step)
        total, own = (state.room("residual").view_as(gradient) for state in (gpu, cpu))
        known = CpuContribution(compression_kernels(), wanted, cpu, own).contribute(None, selections, draw)
        work = GpuContribution(on_gpu(), gradient, gpu, total, picks=True)
        found = work.contribute(None, selections, draw)
        assert torch.equal(picked(work), wanted) and gpu.threshold == cpu.threshold
        assert torch.equal(gpu.next.residual, cpu.next.residual) and found.residual == pytest.approx(known.residual)
        cpu.commit(), gpu.commit()


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_what_is_not_finite_is_taken_first_and_told(bad: float) -> None:
    gradient = drawn("normal", 500, 1, "f32", 3)
    gradient[17] = bad
    total = torch.empty_like(gradient)
    found = GpuContribution(on_gpu(), gradient, None, total).contribute(None, (Top(0.01),), Draw(0, 1, 0, ()))
    assert not found.finite and not gradient[17].isfinite() and int((gradient != 0).sum()) == 5
