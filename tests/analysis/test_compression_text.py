"""Losses and keepers of a plan are said in words, wherever it is explained or drawn."""

from __future__ import annotations

import pytest

from tests.support.pictures import words
from tests.support.plans import plan_of
from tests.support.shipped import LOSSY, SHIPPED, plan_of_shipped
from zenc.analysis.compression_text import described, sentences
from zenc.api import explain
from zenc.draw.scheme import draw
from zenc.draw.steps import steps_of

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
    explained = explain(name, ranks=4, units=1000)
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
    for name, told in (("one_bit", ["as sign(2048)", "as sign(2048)"]), ("ok_topk", ["select top(0.01)"])):
        plan = plan_of_shipped(name, 4)
        seen = words(draw(plan, steps_of(plan, 4)))
        assert [text for text in seen if text in told] == told
        assert any(text.startswith("What that loses is added to the next gradient") for text in seen)
