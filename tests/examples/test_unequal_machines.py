"""The scheme for unequal machines: right and equal sums, and hardly more traffic on the cables than needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import zenc
from tests.support.local import collectives, run_all
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.placement import bound_on
from zenc.api import check
from zenc.gradients.spec import DEFAULT_GRADIENT

HERE = Path(__file__).resolve().parents[2] / "examples" / "unequal_machines"


def test_all_ranks_have_the_same_sum() -> None:
    ranks = collectives(zenc.compile(HERE / "three.zen", ranks=16), 16)
    generator = torch.Generator().manual_seed(0)
    inputs = []
    for _ in ranks:
        rows, values = torch.randint(0, 500, (1, 40), generator=generator), torch.randn(40, 3, generator=generator)
        inputs.append(torch.sparse_coo_tensor(rows, values, (500, 3), check_invariants=True))
    exact = sum(tensor.to_dense().double() for tensor in inputs)
    results = [result.to_dense() for result in run_all(ranks, inputs)]
    assert torch.allclose(results[0].double(), exact, atol=1e-5)
    assert all(torch.equal(result, results[0]) for result in results)


def test_the_cables_carry_hardly_more_than_they_must() -> None:
    topology = zenc.load_topology(HERE / "cluster.zen")
    assert [host.ranks for host in topology.hosts] == [tuple(range(6)), tuple(range(6, 12)), tuple(range(12, 16))]
    placement = check(HERE / "three.zen", topology=topology).placement
    assert placement is not None and placement.over is not None and placement.over.near
    loads, gradient = placement.loads, DEFAULT_GRADIENT
    plan = check(HERE / "three.zen", topology=topology).plan
    expected = expected_bytes(plan, 16, gradient)
    times = {}
    for link, ends in enumerate(loads.links):
        if ends.bandwidth == 25e9 / 8:
            over = bound_on(loads, link, expected)
            assert over is not None
            times[loads.name(link)] = over.bytes / over.least
    assert times == pytest.approx(
        {
            "nic(0, 0) -> nic(1, 0)": 1.0,  # the sum of six
            "nic(1, 0) -> nic(0, 0)": 1.03,  # sums of six and of four, for one of ten
            "nic(1, 0) -> nic(2, 0)": 1.0,  # the sum of twelve
            "nic(2, 0) -> nic(1, 0)": 2.0,  # the sum of four, to each box
        },
        abs=0.01,
    )


def test_tiers_do_not_fit() -> None:
    text = "scheme tiers { tier box(6): balanced tier row: balanced }"
    with pytest.raises(zenc.VerificationError, match="16 ranks are not whole groups of 6"):
        zenc.compile_text(text, ranks=16)
