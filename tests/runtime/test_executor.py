"""The executor of CPUs: resources held after a program, and the rests of messages longer than a first packet."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.support import local
from tests.support.cases import dense_tensor, same_bits, sparse_tensor
from tests.support.local import collectives, run_all
from zenc.api import compile, compile_text
from zenc.runtime.cpu.executor import CpuCall
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter

SCHEMES = [("balanced", 3), ("dense_ring", 4), ("sparcml", 4), ("zen_cluster", 8), ("holders", 3)]


@pytest.mark.parametrize(("name", "size"), SCHEMES)
@pytest.mark.parametrize("make", [sparse_tensor, dense_tensor])
def test_only_the_result_is_held_in_the_end(name, size, make, monkeypatch):
    held = []
    result = CpuCall._result

    def watched(self: CpuCall, *of_call: object) -> torch.Tensor:
        of, expand = self.interpreter, self.script.program.expand
        sets = of.sets.held if isinstance(of, HolderInterpreter) else {}
        held.append((set(of.held) == set(expand.segments), set(sets) == set(expand.sets)))
        return result(self, *of_call)

    monkeypatch.setattr(CpuCall, "_result", watched)
    ranks = collectives(zenc.compile(name, ranks=size), size)
    run_all(ranks, [make("random", rank, size, 200, 2, torch.float32, 1) for rank in range(size)])
    assert held == [(True, True)] * size


@pytest.mark.parametrize("units", [40_000, 65_536, 100_000])
def test_the_fullest_message_that_there_can_be_is_taken(units):
    text = """scheme f { communication: point_to_point aggregation: incremental partition: parallelism
               balance: imbalanced push: coo pull: coo }"""
    full = torch.arange(1.0, units + 1)
    for sum in run_all(collectives(compile_text(text, ranks=2), 2), [full.to_sparse() for _ in range(2)]):
        assert torch.equal(sum.to_dense(), 2 * full)


@pytest.mark.parametrize("name", ["balanced", "sparcml", "dense_ring", "holders", "zen"])
def test_rests_are_sent_when_all_first_packets_of_the_step_are_in(name, monkeypatch):
    """A step sends its first packets, awaits the peers', posts receives of the rests, and only then sends rests."""
    size, events = 4, {rank: [] for rank in range(4)}
    send, receive = local.LocalTransport.send, local.LocalTransport.receive

    def sent(self, peer, tag, buffer):
        events[self.rank].append(("sends rest" if tag & 1 else "sends first", tag >> 1))
        return send(self, peer, tag, buffer)

    def received(self, peer, tag, buffer):
        if tag & 1:
            events[self.rank].append(("is ready for rest", tag >> 1))
        return receive(self, peer, tag, buffer)

    monkeypatch.setattr(local.LocalTransport, "send", sent)
    monkeypatch.setattr(local.LocalTransport, "receive", received)
    inputs = [sparse_tensor("random", rank, size, 200_000, 2, torch.float32, 1) for rank in range(size)]
    artifact = compile(name, ranks=size)
    assert same_bits(run_all(collectives(artifact, size), inputs))
    order = ("sends first", "is ready for rest", "sends rest")
    for of_rank in events.values():
        steps = {}
        for what, step in of_rank:
            steps.setdefault(step, []).append(order.index(what))
        assert any(2 in of_step for of_step in steps.values()), "nothing was long"
        assert all(of_step == sorted(of_step) for of_step in steps.values()), steps
