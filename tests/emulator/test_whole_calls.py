"""Whole calls of the CUDA target, with all of it watched by sanitizers, give the bits of the CPU target."""

from __future__ import annotations

import re

import pytest
import torch

from tests.emulator.whole_calls import programs, results, run
from tests.support.cases import assert_same_bits, dense_tensor, sparse_tensor
from tests.support.local import collectives, run_all
from zenc.compiler import compile
from zenc.targets.cuda.call import Outcome

CASES = {
    "balanced": (3, "sum", sparse_tensor, torch.float32),
    "dense_ring": (4, "mean", dense_tensor, torch.float32),
    "agsparse": (2, "sum", sparse_tensor, torch.bfloat16),
    "holders": (3, "sum", sparse_tensor, torch.bfloat16),
    "sparcml": (4, "mean", sparse_tensor, torch.float64),
    "zen": (3, "sum", sparse_tensor, torch.float32),
}
"""Scheme -> ranks, operation, kind of tensor, dtype."""
SLOW = pytest.mark.slow


def drawn(scheme, make, size, dtype):
    return [make("random", rank, size, 400, 3, dtype, 5) for rank in range(size)]


@pytest.mark.parametrize(
    ("scheme", "mode"),
    [
        ("balanced", "thread"),
        pytest.param("balanced", "address", marks=SLOW),
        *(pytest.param(scheme, mode, marks=SLOW) for scheme in list(CASES)[1:] for mode in ("address", "thread")),
    ],
)
def test_results_are_those_of_the_cpu(scheme, mode, tmp_path):
    size, op, make, dtype = CASES[scheme]
    artifact, inputs = compile(scheme, ranks=size), drawn(scheme, make, size, dtype)
    expected = run_all(collectives(artifact, size), [tensor.clone() for tensor in inputs], op)
    made = programs(artifact.plan, size, mode)
    for wanted, found in zip(expected, results(made, inputs, op, tmp_path, 2, EMULATOR_SEED="1"), strict=True):
        assert_same_bits([wanted, found])


@pytest.mark.parametrize("mode", ["thread", pytest.param("address", marks=SLOW)])
def test_a_dead_peer_ends_calls_in_order(mode, tmp_path):
    """Nothing leaks, nothing races, nobody waits for ever."""
    size, op, make, dtype = CASES["balanced"]
    made = programs(compile("balanced", ranks=size).plan, size, mode)
    ran = run(made, drawn("balanced", make, size, dtype), op, tmp_path, seconds=2, EMULATOR_FAULTS="dead@1:2=1")
    failed = dict(re.findall(r"call 1 of rank (\d) failed with outcome (\d)", ran.stderr))
    assert ran.returncode == 1
    assert failed == {
        "0": str(Outcome.DEADLINE_PASSED.value),
        "1": str(Outcome.NCCL_FAILED.value),
        "2": str(Outcome.DEADLINE_PASSED.value),
    }, ran.stderr
    assert "Sanitizer" not in ran.stderr


FAULTS = (
    "cuMemHostAlloc@1:1=2",
    "cuMemAlloc@1:5=2",
    "cuLaunchKernel@1:4=719",
    "cuMemcpyDtoHAsync@1:1=1",
    "cuMemsetD8Async@1:1=1",
    "cuEventRecord@1:1=400",
    "cuEventQuery@1:1=719",
    "cuStreamWaitEvent@1:1=400",
    "ncclSend@1:1=3",
    "ncclRecv@1:2=3",
    "ncclGroupEnd@1:1=2",
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["thread", "address"])
def test_failures_leave_nothing_behind(mode, tmp_path):
    """One function of one rank fails once: all ranks hear of it, and nothing leaks or races."""
    size, op, make, dtype = CASES["balanced"]
    made = programs(compile("balanced", ranks=size).plan, size, mode)
    for fault in FAULTS:
        ran = run(made, drawn("balanced", make, size, dtype), op, tmp_path, seconds=2, EMULATOR_FAULTS=fault)
        assert ran.returncode == 1, (fault, ran.stderr)
        assert "call 1 of rank 1 failed with outcome" in ran.stderr, (fault, ran.stderr)
        assert "Sanitizer" not in ran.stderr, (fault, ran.stderr)
