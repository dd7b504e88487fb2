"""The order in which a rank encodes, sends, decodes and writes, which overlaps work with the wire."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zenc
from tests.support.local import LocalTransport, collectives, run_all
from zenc.runtime.cpu.channel import Channel
from zenc.runtime.lossy.coded_segments import CodedOps
from zenc.runtime.lossy.cpu_interpreter import LossyInterpreter

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
