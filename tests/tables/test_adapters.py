"""FSDP2 with reduce-scatters of a scheme, and replicas averaged by changed rows."""

from __future__ import annotations

import pytest
import torch

JOBS = "tests.tables.adapter_jobs"


def test_gradients_of_fsdp_are_its_own(four):
    cases = [None, {}, {"width": 4}, {"scheme": "dense_ring", "width": 4}]
    for results in four.run(f"{JOBS}:fsdp", size=3, cases=cases):
        for found in results[1:]:
            assert all(torch.allclose(*pair, rtol=1e-6) for pair in zip(found, results[0], strict=True))
        assert results[0][0].any(), "some row of the table was looked up"


@pytest.mark.parametrize(
    ("scheme", "width", "expected"),
    [(None, 6, ""), (None, 7, "other-shards"), ("balanced", 6, "other-shards"), ("holders", 6, "phase-not-alone")],
)
def test_other_shards_are_refused(two, scheme, width, expected):
    assert two.run(f"{JOBS}:fsdp_refused", scheme=scheme, width=width) == [expected] * 2


def test_the_hook_of_fsdp_reduces_over_replicas(two):
    for weight, bias in two.run(f"{JOBS}:hooked"):
        assert torch.equal(weight, torch.full((2, 3), 1.5)) and torch.equal(bias, torch.ones(2))


@pytest.mark.parametrize(("scheme", "by_hook"), [("balanced", False), ("agsparse", True)])
def test_replicas_are_averaged(four, scheme, by_hook):
    """The calls are torchrec's: ``custom_all_reduce(tensors)``, and a hook with the group."""
    results = four.run(f"{JOBS}:averaged", size=3, scheme=scheme, by_hook=by_hook)
    for result in results:
        for ours, plain, first in zip(result["ours"], result["plain"], results[0]["ours"], strict=True):
            assert torch.allclose(ours, plain, rtol=1e-5, atol=1e-6) and torch.equal(ours, first)
