"""``balanced by encoded``: a call is cut where the encoded sums of the call before were equally long, on all ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.runtime.lossy.test_saved_state import through_a_file
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.errors import SynchronisationError
from zenc.runtime.call.collective import Collective

SIZE, NUMEL = 4, 20_000
HALF = "communication: point_to_point then ring aggregation: incremental partition: parallelism"


def half_empty(step: int) -> list[torch.Tensor]:
    """Return gradients whose second half is nearly all zeros, and so much shorter when encoded."""
    generator = torch.Generator().manual_seed(step)
    tensors = torch.randn(SIZE, NUMEL, generator=generator)
    tensors[:, NUMEL // 2 :] *= torch.rand(SIZE, NUMEL // 2, generator=generator) < 0.01
    return list(tensors)


def kept(ranks: list[Collective]) -> torch.Tensor:
    return sum((rank.residual("w").double() for rank in ranks), torch.zeros(NUMEL, dtype=torch.float64))


def longest_over_mean(rank: Collective) -> float:
    return rank.stats["phases"]["pull"]["imbalance"]


@pytest.fixture(scope="module")
def oscar() -> Artifact:
    return zenc.compile("oscar_hw", ranks=SIZE)


def test_the_second_call_has_parts_of_equal_bytes_and_loses_nothing(oscar: Artifact) -> None:
    ranks, before, uneven = collectives(oscar, SIZE), torch.zeros(NUMEL, dtype=torch.float64), []
    for step in range(3):
        gradients = half_empty(step)
        found = run_all(ranks, [each.clone() for each in gradients], name="w")
        assert all(torch.equal(each, found[0]) for each in found)
        given_in = sum(each.double() for each in gradients) + before
        before = kept(ranks)
        assert torch.allclose(given_in, found[0].double() + before, rtol=0, atol=1e-5)
        assert len({tuple(rank.stats["loss"]["part_bytes"]) for rank in ranks}) == 1
        uneven.append(longest_over_mean(ranks[0]))
    assert uneven[0] > 1.6
    assert max(uneven[1:]) < 1.05


def test_a_restart_cuts_as_if_it_had_gone_on_and_another_cut_is_found_out(oscar: Artifact) -> None:
    first, second = collectives(oscar, SIZE), collectives(oscar, SIZE, 2.0)
    run_all(first, half_empty(0), name="w")
    states = [through_a_file(rank.state_dict()) for rank in first]
    for rank, state in zip(second, states, strict=True):
        rank.load_state_dict(state)
    found, expected = (run_all(ranks, half_empty(1), name="w") for ranks in (second, first))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert states[0]["tensors"]["w"]["ends"] == states[1]["tensors"]["w"]["ends"] != []
    assert str(second[2].state_dict()) == str(first[2].state_dict())
    states[0]["tensors"]["w"]["ends"] = [1, 2, 3, NUMEL]
    second[0].load_state_dict(states[0])
    with pytest.raises(SynchronisationError):
        run_all(second, half_empty(2), name="w")


@st.composite
def cuts(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a tensor of rows or elements, and ends of its parts, some of them empty."""
    units, width = draw(st.integers(1, 300)), draw(st.sampled_from([1, 3]))
    ends = sorted(draw(st.lists(st.integers(0, units), min_size=2, max_size=2)))
    return {"units": units, "width": width, "ends": [*ends, units], "seed": draw(st.integers(0, 99))}


@pytest.mark.parametrize("formats", ["push: coo as f16 pull: dense as f16", "push: auto as f16 pull: bitmap as f16"])
def test_any_ranges_sum_and_keep_what_they_lose(formats: str) -> None:
    text = f"scheme any {{ {HALF} balance: balanced by encoded feedback: residual {formats} }}"
    artifact = zenc.compile_text(text, ranks=3)

    @settings(max_examples=tried(40), deadline=None)
    @given(cuts())
    def check(of: dict[str, Any]) -> None:
        ranks, generator = collectives(artifact, 3), torch.Generator().manual_seed(of["seed"])
        tensors = torch.randint(-2, 3, (3, of["units"], of["width"]), generator=generator) * (1 + 2**-14)
        shape, zeros = [of["units"], of["width"]], torch.zeros(of["units"] * of["width"])
        tensor = {"shape": shape, "step": 0, "threshold": None, "ends": of["ends"], "residual": zeros}
        for rank in ranks:
            state = {"zenc_residuals": 1, "feedback": "residual", "ranks": 3, "rank": rank.rank}
            rank.load_state_dict({**state, "tensors": {"w": tensor}})
        found = run_all(ranks, list(tensors.clone()), name="w", rows=True)
        left = sum(rank.residual("w") for rank in ranks)
        assert torch.equal(found[0] + left, tensors.sum(0))
        assert all(torch.equal(each, found[0]) for each in found)
        assert ranks[0].stats["loss"]["part_bytes"] == ranks[1].stats["loss"]["part_bytes"]

    check()
