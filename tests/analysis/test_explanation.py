"""Explanations of plans; ``tests/runtime/test_bytes.py`` shows that their bytes are exact."""

import json
from dataclasses import replace

import numpy as np
import pytest

import zenc
from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.pictures import words
from tests.support.plans import explain, plan_of
from tests.support.refusals import refusals
from tests.support.shipped import LOSSY, SHIPPED, plan_of_shipped
from zenc.analysis import explanation
from zenc.analysis.compression_text import described, sentences
from zenc.analysis.exact_traffic import weigh
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.scaling import symbolic
from zenc.draw.scheme import draw
from zenc.draw.steps import steps_of
from zenc.errors import SchemeError, VerificationError
from zenc.gradients.index_sets import drawn, figures, gradients
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import PhaseKind
from zenc.verify.proof import verify

HASHED = ("point_to_point", "incremental", "partition: parallelism balance: balanced by hierarchical_hash")


@pytest.mark.parametrize("combination", [*COMBINATIONS, HASHED], ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_messages_add_up_to_the_bytes_of_the_rank(combination):
    load = GradientSpec(500, 3, "f32", 0.2)
    for size in (1, 2, 5, 8):
        plan = plan_of(scheme_text(*combination, "coo", "bitmap"), size)
        weight = weigh(plan, verify(plan, size)[0], drawn(load, size))
        for rank in range(size):
            explained = explain(plan, size, rank, load)
            for phase in ("push", "pull"):
                traffic, counted = explained.traffic[phase], weight.traffic[phase].of_rank(rank)
                assert (traffic.sent, traffic.received) == (counted["bytes_sent"], counted["bytes_received"])
                messages = [m for m in explained.messages if m.phase == phase]
                for direction, bytes, number in (
                    ("send", traffic.sent, counted["messages_sent"]),
                    ("receive", traffic.received, counted["messages_received"]),
                ):
                    chosen = [m.bytes for m in messages if m.direction == direction]
                    assert (sum(chosen), len(chosen)) == (bytes, number)


def test_the_busiest_rank_is_the_busiest():
    text = scheme_text("hierarchy", "incremental", "partition: centralization")
    load = GradientSpec(1000, 4, "f32", 0.1)
    by_rank = [explain(plan_of(text), 6, rank, load).traffic["total"] for rank in range(6)]
    assert {t.most_sent for t in by_rank} == {max(t.sent for t in by_rank)}
    assert {t.most_received for t in by_rank} == {max(t.received for t in by_rank)}


def test_json_and_text_tell_the_same():
    explained = explain(plan_of(scheme_text(*COMBINATIONS[-1])), 3, 1, GradientSpec(60, 2, "f16", 0.5))
    data = json.loads(json.dumps(explained.to_json()))
    assert data["size"] == data["parts"] == 3 and data["owners"] == [0, 1, 2] and data["rank"] == 1
    assert data["rounds"] == {"push": 1, "pull": 1}
    assert len(data["messages"]) == 8 and all(m["at"].startswith("patterns.zen:") or m["at"] for m in data["messages"])
    assert data["dense_ring_bytes"] == 2 * 2 * 60 * 2 * 2 // 3
    text = explained.text()
    assert "push, step 1" in text and "pull, step 1" in text and "to   rank 2" in text
    assert f"{data['bytes']['total']['sent']} B" in text


def test_messages_are_counted_where_they_are_too_many(monkeypatch):
    explained = explain(plan_of(scheme_text(*COMBINATIONS[-1])), 5, 1, GradientSpec(60, 2, "f16", 0.5))
    monkeypatch.setattr(explanation, "MOST_MESSAGES", len(explained.messages))
    assert "more message" not in explanation.explanation_text(explained)
    monkeypatch.setattr(explanation, "MOST_MESSAGES", len(explained.messages) - 1)
    assert "... and 1 more message (--json" in explanation.explanation_text(explained)


def test_one_rank_says_nothing():
    explained = explain(plan_of(scheme_text(*COMBINATIONS[-1])), 1, 0, GradientSpec(60, 2, "f16", 0.5))
    assert explained.messages == () and explained.traffic["total"].sent == 0
    assert "nothing to send" in explained.text()


@pytest.mark.parametrize(
    ("rank", "load", "found"),
    [
        (4, GradientSpec(10, 1, "f32", 0.5), 1),
        (-1, GradientSpec(10, 1, "f32", 0.5), 1),
        (0, GradientSpec(10, 1, "f32", 1.5), 1),
        (0, GradientSpec(10, 1, "f32", float("nan")), 1),
        (0, GradientSpec(-1, 1, "f32", 0.5), 1),
        (0, GradientSpec(10, 0, "f8", -0.5), 3),
        (0, GradientSpec(10, 1, "f32", 0.5, zipf=-1.0), 1),
        (0, GradientSpec(10, 1, "f32", 0.5, overlap=0.4), 1),
        (0, GradientSpec(10, 1, "f32", 0.5, overlap=2.0), 1),
        (0, GradientSpec(10, 1, "f32", 0.5, overlap=0.0), 1),
        (0, GradientSpec(10, 1, "f32", 0.5, overlap=float("nan")), 1),
        (0, GradientSpec(10, 1, "f32", 0.5, zipf=1.0, overlap=0.6), 1),
        (0, GradientSpec(10, 1, "f32", 0.5, seed=-1), 1),
        (0, GradientSpec(1 << 28, 1, "f32", 0.5), 1),
        (0, GradientSpec(1 << 40, 1, "f32", 0.5), 2),
    ],
)
def test_loads_that_cannot_be(rank, load, found):
    refused = refusals(SchemeError, explain, plan_of(scheme_text(*COMBINATIONS[-1])), 4, rank, load)
    assert [d.id for d in refused] == ["bad-load"] * found


def test_figures_by_hand():
    """Ranks hold units 0-3, 0-1 and 2 of twelve, 8 bytes each, in ranges of four units."""
    found = figures(gradients(12, 2, "f32", [[0, 1, 2, 3], [1, 0, 0], [2]]))
    assert found.density == 7 / 36 and found.density_out == 4 / 12
    assert found.densification == pytest.approx((4 / 12) / (7 / 36))
    assert found.skewness == 3
    assert found.overlap == pytest.approx(6 / 14)  # of ordered pairs of ranks: 3 units shared, both ways
    assert found.dense_ring_bytes == 2 * 2 * 12 * 8 // 3
    assert found.bound_bytes == (3 + 3 + 3 + 2) * 8 // 3


def test_nothing_has_figures_too():
    for empty in (gradients(0, 1, "f32", [[], []]), gradients(9, 1, "f32", [[]]), gradients(9, 1, "f32", [[], []])):
        found = figures(empty)
        assert found.densification == found.skewness == found.overlap == 1 and found.bound_bytes == 0


def test_dense_gradients_have_the_bound_of_a_ring():
    found = figures(gradients(60, 4, "f64", [np.arange(60)] * 5))
    assert found.bound_bytes == found.dense_ring_bytes == 2 * 4 * 60 * 32 // 5


def test_a_wrong_plan_is_not_explained():
    text = (
        "scheme s { communication: schedule { push { } pull { } } aggregation: incremental partition: centralization }"
    )
    with pytest.raises(VerificationError, match="never-complete"):
        explain(plan_of(text), 2, 0, GradientSpec(10, 1, "f32", 0.5))


def test_blocks_are_expected_to_fill_up():
    combination = ("point_to_point", "incremental", "partition: parallelism balance: imbalanced")
    plan = plan_of(scheme_text(*combination, "block(64)", "block(64)"), 4)
    load = GradientSpec(100_000, 1, "f32", 0.01)
    explained = explain(plan, 4, 0, load)
    model = expected_bytes(plan, 4, GradientSpec(load.units, load.width, load.dtype, load.density))
    for phase, contributors in ((plan.of(PhaseKind.PUSH)[0], 1), (plan.of(PhaseKind.PULL)[0], 4)):
        expected = 3 * (48 + float(model.piece(phase, contributors)[1][0]))
        kind = "push" if contributors == 1 else "pull"
        assert explained.traffic[kind].sent == pytest.approx(expected, rel=0.05)
    general = replace(explained, general=symbolic(plan_of(scheme_text(*combination, "block(64)", "coo")), 4, 0.01))
    assert "b, b_k: the same as d, d_k of units in blocks that have any, of 64 units in push and pull" in general.text()


KEPT = "what that loses is added to the next gradient of the same name"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("topk_a2a", ["a rank contributes top_of_parts(0.01) of its gradient", KEPT]),
        (
            "dgc",
            [
                "a rank contributes top(0.01) by sampled(0.01) of its gradient",
                f"{KEPT}, with momentum 0.9",
                "the density falls from 0.25 in the first 2,000 calls of a name, in stages of a quarter each",
            ],
        ),
        (
            "terngrad",
            [
                "the push travels as ternary(2048)",
                "the pull is rounded to bf16 by chance",
                "what that loses is kept nowhere, since it is right in the mean",
            ],
        ),
    ],
)
def test_sentences(name: str, told: list[str]) -> None:
    assert sentences(plan_of_shipped(name)) == told
    explained = zenc.explain(name, ranks=4, units=1000)
    assert set(told) < set(explained.text().splitlines())
    assert explained.to_json()["compression"] == told


def test_who_selects_again_and_where() -> None:
    text = """
    scheme top {
        communication: point_to_point   aggregation: incremental   partition: parallelism   balance: imbalanced
        select: top(0.1)   reselect: top(0.2)   feedback: residual   warmup: dense(1000)   push: coo   pull: coo
    }
    scheme combination { tier node(2): dense_ring   tier cluster: top }
    """
    assert sentences(plan_of(text, 4, scheme="combination")) == [
        "a rank contributes top(0.1) of what it holds in tier cluster",
        "the owner of a part hands on top(0.2) of the sum in tier cluster",
        KEPT,
        "the first 1,000 calls of a name contribute everything",
    ]
    assert sentences(plan_of_shipped("gtop_k"))[1] == "a rank goes on with top(0.001) of what it has merged in a step"


def test_exact_plans_have_none_and_lossy_ones_do() -> None:
    assert not any(sentences(plan_of_shipped(name)) for name in SHIPPED)
    assert all(sentences(plan_of_shipped(name)) for name in LOSSY)
    exact = plan_of_shipped("balanced")
    assert described(exact) == exact.doc


def test_drawings_say_it() -> None:
    plan = plan_of_shipped("one_bit", 4)
    drawn = draw(plan, steps_of(plan, 4)).description
    assert "The push travels as sign(2048). The pull travels as sign(2048)." in drawn


def test_steps_say_what_is_selected_before_them_and_how_values_travel() -> None:
    for name, told in (
        ("one_bit", ["as sign(2048)", "as sign(2048)"]),
        ("ok_topk", ["select top(0.01)"]),
        ("gtop_k", ["merge top(0.001)"] * 2),
    ):
        plan = plan_of_shipped(name, 4)
        seen = words(draw(plan, steps_of(plan, 4)))
        assert [text for text in seen if text in told] == told
        assert any(text.startswith("What that loses is added to the next gradient") for text in seen)
