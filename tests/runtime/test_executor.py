"""The CPU's executor: runs of statements, and resources held after a program."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.support.cases import dense_tensor, sparse_tensor
from tests.support.local import collectives, run_all
from tests.support.shipped import plan_of_shipped
from zenc.rank_ir.lower import lower
from zenc.runtime.cpu.executor import CpuCall, script_of
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


@pytest.mark.parametrize(
    ("name", "rank", "played"),
    [
        ("balanced", 0, ["push 1: 1", "merge: 1", "pull 1: 1"]),
        ("dense_ring", 1, ["push 1: 1", "merge: 1", "push 2: 1", "merge: 1", "pull 1: 1", "pull 2: 1"]),
        ("holders", 2, ["announce 1: 1", "agree: 2", "push 1: 1", "merge: 1", "pull 1: 1", "pull 2: 1"]),
    ],
)
def test_what_a_profiler_sees_as_one_range(name, rank, played):
    """A range has its number and its statements; filling up is part of the packing."""
    script = script_of(lower(plan_of_shipped(name), 3, rank))
    found = [(span.name, span.number, len(span.statements)) for _, spans in script.phases for span in spans]
    assert [f"{name}{f' {number}' if number else ''}: {count}" for name, number, count in found] == played
    assert [fill.result for fill in script.fills] == (list(script.program.own) if name == "dense_ring" else [])
