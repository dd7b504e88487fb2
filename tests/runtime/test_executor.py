"""The CPU's executor: runs of statements, and resources held after a program."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.support.cases import dense_tensor, sparse_tensor
from tests.support.local import collectives, run_all
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
