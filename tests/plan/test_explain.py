"""What is predicted is what is counted: exactly at densities 0 and 1, and closely in between."""

from __future__ import annotations

import json

import pytest
import torch

import zenc
from tests.support.cases import COMBINATIONS, FORMATS, scheme_text
from tests.support.local import collectives, run_all
from tests.support.plans import plan_of
from zenc.errors import SchemeError, VerificationError
from zenc.plan.explain import Explanation, Load, explain
from zenc.plan.formats import DTYPE_BYTES

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
UNITS, WIDTH = 137, 3
HASHED = "partition: parallelism balance: balanced by hierarchical_hash"
EXPLAINED = [*COMBINATIONS, ("point_to_point", "incremental", HASHED), ("ring", "one_shot", HASHED)]


def gradient(units: int, width: int, density: float, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(units, generator=generator)[: round(units * density)]
    values = torch.ones(len(ids), width, dtype=dtype)
    return torch.sparse_coo_tensor(ids[None], values, (units, width), check_invariants=False)


def counted(text: str, size: int, load: Load) -> list[dict]:
    """The statistics of every rank of a real run."""
    ranks = collectives(zenc.compile_text(text, ranks=size), size)
    inputs = [gradient(load.units, load.width, load.density, DTYPES[load.dtype], rank) for rank in range(size)]
    run_all(ranks, inputs)
    return [rank.stats for rank in ranks]


def assert_counted(explained: Explanation, stats: dict) -> None:
    for phase in ("push", "pull"):
        predicted, found = explained.traffic[phase], stats["phases"][phase]
        assert (predicted.sent, predicted.received) == (found["bytes_sent"], found["bytes_received"])
        messages = [m for m in explained.messages if m.phase == phase]
        assert sum(m.bytes for m in messages if m.direction == "send") == found["bytes_sent"]
        assert sum(m.direction == "send" for m in messages) == found["messages_sent"]
        assert sum(m.direction == "receive" for m in messages) == found["messages_received"]


@pytest.mark.parametrize("density", [0.0, 1.0])
@pytest.mark.parametrize("combination", EXPLAINED, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_nothing_and_everything_weigh_what_is_predicted(combination, density):
    """Every size has its formats and dtype; ``dense`` in one phase only is among them."""
    for size in (1, 2, 3, 5, 8):
        turn = size + EXPLAINED.index(combination)
        push, pull = FORMATS[turn % 5], FORMATS[turn // 5 % 5]
        load = Load(UNITS, WIDTH, list(DTYPE_BYTES)[turn % 4], density)
        text = scheme_text(*combination, push, pull)
        for rank, stats in enumerate(counted(text, size, load)):
            explained = explain(plan_of(text, size), size, rank, load)
            assert_counted(explained, stats)


@pytest.mark.parametrize("push", FORMATS)
@pytest.mark.parametrize("pull", FORMATS)
def test_every_pair_of_formats(push, pull):
    for density in (0.0, 1.0):
        load = Load(70, 1, "f32", density)
        text = scheme_text("point_to_point", "incremental", "partition: parallelism balance: imbalanced", push, pull)
        for rank, stats in enumerate(counted(text, 3, load)):
            assert_counted(explain(plan_of(text, 3), 3, rank, load), stats)


@pytest.mark.parametrize("combination", [COMBINATIONS[-1], COMBINATIONS[2], COMBINATIONS[8]])
def test_random_gradients_come_near(combination):
    load = Load(20_000, 8, "f32", 0.05)
    text = scheme_text(*combination, "coo", "bitmap")
    for rank, stats in enumerate(counted(text, 4, load)):
        total = explain(plan_of(text, 4), 4, rank, load).traffic["total"]
        assert abs(total.sent - stats["bytes_sent"]) < 0.1 * stats["bytes_sent"]
        assert abs(total.received - stats["bytes_received"]) < 0.1 * stats["bytes_received"]


def test_the_busiest_rank_is_the_busiest():
    text = scheme_text("hierarchy", "incremental", "partition: centralization")
    load = Load(1000, 4, "f32", 0.1)
    by_rank = [explain(plan_of(text), 6, rank, load).traffic["total"] for rank in range(6)]
    assert {t.most_sent for t in by_rank} == {max(t.sent for t in by_rank)}
    assert {t.most_received for t in by_rank} == {max(t.received for t in by_rank)}


def test_json_and_text_tell_the_same():
    explained = explain(plan_of(scheme_text(*COMBINATIONS[-1])), 3, 1, Load(60, 2, "f16", 0.5))
    data = json.loads(json.dumps(explained.to_json()))
    assert data["size"] == data["parts"] == 3 and data["owners"] == [0, 1, 2] and data["rank"] == 1
    assert data["rounds"] == {"push": 1, "pull": 1}
    assert len(data["messages"]) == 8 and all(m["at"].startswith("patterns.zen:") or m["at"] for m in data["messages"])
    assert data["dense_ring_bytes"] == 2 * 2 * 60 * 2 * 2 // 3
    text = explained.text()
    assert "push, step 1" in text and "pull, step 1" in text and "to   rank 2" in text
    assert f"{data['bytes']['total']['sent']} B" in text


def test_one_rank_says_nothing():
    explained = explain(plan_of(scheme_text(*COMBINATIONS[-1])), 1, 0, Load(60, 2, "f16", 0.5))
    assert explained.messages == () and explained.traffic["total"].sent == 0
    assert "nothing to send" in explained.text()


@pytest.mark.parametrize(
    ("rank", "load", "found"),
    [
        (4, Load(10, 1, "f32", 0.5), 1),
        (-1, Load(10, 1, "f32", 0.5), 1),
        (0, Load(10, 1, "f32", 1.5), 1),
        (0, Load(10, 1, "f32", float("nan")), 1),
        (0, Load(-1, 1, "f32", 0.5), 1),
        (0, Load(10, 0, "f8", -0.5), 3),
    ],
)
def test_loads_that_cannot_be(rank, load, found):
    with pytest.raises(SchemeError) as caught:
        explain(plan_of(scheme_text(*COMBINATIONS[-1])), 4, rank, load)
    assert [d.id for d in caught.value.diagnostics] == ["bad-load"] * found


def test_a_wrong_plan_is_not_explained():
    text = (
        "scheme s { communication: schedule { push { } pull { } } aggregation: incremental partition: centralization }"
    )
    with pytest.raises(VerificationError, match="never-complete"):
        explain(plan_of(text), 2, 0, Load(10, 1, "f32", 0.5))
