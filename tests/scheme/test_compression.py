"""What selects and encodes: words to data and back, and what an author hears of a slip; plans keep it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import fuzzed
from zenc.errors import ArtifactError, Diagnostic, SchemeError
from zenc.language.files import load_text
from zenc.language.parse import parse_phrase
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.to_json import plan_text, plan_to_json
from zenc.scheme import compression as c
from zenc.scheme.arguments import Environment
from zenc.scheme.collector import Collector
from zenc.scheme.compression_words import TABLES, arguments_of, read_selection, selection_text, words_of
from zenc.scheme.model import Scheme
from zenc.scheme.resolve import resolve

REST = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"


def scheme_of(entries: str, parameters: str = "") -> Scheme:
    return resolve(load_text(f"scheme mine{parameters} {{ {REST} {entries} }}", "t.zen"))[0]


def problems(entries: str, parameters: str = "") -> tuple[Diagnostic, ...]:
    with pytest.raises(SchemeError) as caught:
        scheme_of(entries, parameters)
    return caught.value.diagnostics


@pytest.mark.parametrize(
    ("entries", "field", "meaning"),
    [
        ("push: coo as f16", "push_code", c.Rounded("f16")),
        ("push: dense as sign(2048)", "push_code", c.Sign(2048)),
        ("pull: dense as int(4, 512)", "pull_code", c.Integers(4, 512)),
        ("pull: dense as fixed(8) by asc", "pull_code", c.Fixed(8, "asc")),
        ("push: auto as levels(block = 64)", "push_code", c.RandomLevels(64, 64)),
        ("select: top(0.01)", "select", (c.Top(0.01),)),
        ("select: top(1) by sampled(0.02)", "select", (c.Top(1.0, c.Sampled(0.02)),)),
        ("select: probable(0.05) then sketch(3, 0.02)", "select", (c.Probable(0.05), c.Sketch(3, 0.02))),
        ("select: all", "select", ()),
        ("reselect: top(0.01)", "reselect", (c.Top(0.01),)),
        ("push: dense as f16", "push_code", c.Rounded("f16")),
    ],
)
def test_what_the_words_of_a_tier_mean(entries: str, field: str, meaning: object) -> None:
    (tier,) = scheme_of(entries + " feedback: residual").tiers
    assert getattr(tier, field) == meaning


@pytest.mark.parametrize(
    ("entries", "field", "meaning"),
    [
        ("feedback: residual", "feedback", c.Residual()),
        ("feedback: momentum(0.9)", "feedback", c.Momentum(0.9)),
        ("feedback: none", "feedback", None),
        ("warmup: dense(500)", "warmup", c.Dense(500)),
        ("warmup: falling(2000, 0.25)", "warmup", c.Falling(2000, 0.25)),
    ],
)
def test_what_the_words_of_a_scheme_mean(entries: str, field: str, meaning: object) -> None:
    assert getattr(scheme_of(entries), field) == meaning


def test_parameters_of_the_scheme_are_arguments() -> None:
    scheme = scheme_of("select: top(d) feedback: residual push: coo as int(b)", "(d = 0.02, b = 4)")
    (tier,) = scheme.tiers
    assert tier.select == (c.Top(0.02),) and tier.push_code == c.Integers(4, 2048)


@pytest.mark.parametrize(
    ("entries", "id", "message"),
    [
        ("select: tpo(0.1)", "unknown-value", "did you mean 'top'?"),
        ("select: top", "wrong-arguments", "'top' needs a value for 'density'"),
        ("select: top(0)", "wrong-range", "'density' of 'top' is above 0 and at most 1.0, not 0"),
        ("select: top(0.0)", "wrong-range", "above 0 and at most 1.0, not 0.0"),
        ("select: top(1.5)", "wrong-range", "not 1.5"),
        ("select: top(0.1, 2)", "wrong-arguments", "'top' takes at most 1 argument (density)"),
        ("select: sketch(0)", "wrong-range", "'rows' of 'sketch' is 1 or more and at most 15, not 0"),
        ("select: sketch(2.5)", "wrong-type", "an integer is needed here, not 2.5"),
        ("select: top(0.1) by histgram", "unknown-value", "did you mean 'histogram'?"),
        ("select: random(0.1) by histogram", "wrong-value", "it stands alone"),
        ("select: top(0.1) as f16", "wrong-value", "one 'by' may follow it"),
        ("select: all(3)", "wrong-arguments", "'all' takes no arguments"),
        ("select: schedule { push { } pull { } }", "wrong-value", "no schedule"),
        ("push: coo as sgn", "unknown-value", "unknown code 'sgn'; one of f16, bf16"),
        ("push: coo as f16 as f16", "wrong-value", "one code may follow a format"),
        ("push: coo as fixed(8) by acs", "unknown-value", "did you mean 'asc'?"),
        ("push: coo as f16(2)", "wrong-arguments", "'f16' takes no arguments"),
        ("feedback: residul", "unknown-value", "did you mean 'residual'?"),
        ("feedback: residual then momentum", "wrong-value", "it stands alone"),
        ("warmup: dense", "wrong-arguments", "'dense' needs a value for 'steps'"),
    ],
)
def test_slips_are_told(entries: str, id: str, message: str) -> None:
    (diagnostic,) = problems(entries)
    assert diagnostic.id == id and message in diagnostic.message, diagnostic


def one_of(made: Any) -> st.SearchStrategy[Any]:
    """Every value of a class of the tables, within the ranges of its fields."""
    given: dict[str, st.SearchStrategy[Any]] = {}
    for field in arguments_of(made):
        least, most = field.metadata["range"]
        integer = field.type == "int"
        given[field.name] = st.integers(least, most) if integer else st.floats(least, most, exclude_min=not least)
    if made is c.Rounded:
        given["name"] = st.sampled_from(["f16", "bf16"])
    if made is c.Fixed:
        given["coder"] = st.sampled_from(["none", "asc"])
    if made in (c.Top, c.TopOfParts):
        given["by"] = st.one_of(*map(one_of, c.ESTIMATORS.values()))
    return st.builds(made, **given)


ONE = {kind: st.one_of(*(one_of(made) for made in dict.fromkeys(table.values()))) for kind, table in TABLES.items()}


@fuzzed(100)
@given(selection=st.lists(ONE["selection"], max_size=3).map(tuple))
def test_words_say_what_they_are_of(selection: tuple[c.Selection, ...]) -> None:
    report = Collector()
    for whole in (False, True):
        assert read_selection(parse_phrase(selection_text(selection, whole)), Environment(), report) == selection
    assert not report.found


@fuzzed(60)
@given(
    code=ONE["code"],
    feedback=st.none() | ONE["feedback"],
    warmup=st.none() | ONE["warmup"],
    selection=st.lists(ONE["selection"], min_size=1, max_size=2).map(tuple),
)
def test_plans_keep_it(
    code: c.Code, feedback: c.Feedback | None, warmup: c.Warmup | None, selection: tuple[c.Selection, ...]
) -> None:
    keepers = {"feedback": feedback, "warmup": warmup}
    kept = " ".join(f"{key}: {words_of(value)}" for key, value in keepers.items() if value)
    text = f"select: {selection_text(selection)} push: coo as {words_of(code)} pull: dense {kept}"
    plan = lower(scheme_of(text), 3)
    assert (plan.phases[0].code, plan.phases[0].select, plan.phases[1].code) == (code, selection, None)
    assert (plan.feedback, plan.warmup, plan.is_lossy) == (feedback, warmup, True)
    again = plan_from_json(json.loads(plan_text(plan)))
    assert again == plan and again.digest == plan.digest


def plain() -> Plan:
    return lower(scheme_of(""), 3)


def test_a_plan_without_it_has_no_word_of_it() -> None:
    text = plan_text(plain())
    assert not plain().is_lossy and not any(f'"{key}"' in text for key in ("code", "select", "feedback", "warmup"))


@pytest.mark.parametrize(
    ("key", "words"),
    [("feedback", "none"), ("feedback", "keep"), ("warmup", "dense(0)"), ("warmup", 3), ("feedback", "top(0.1)")],
)
def test_a_forged_keeper_is_refused(key: str, words: object) -> None:
    with pytest.raises(ArtifactError):
        plan_from_json({**plan_to_json(plain()), key: words})


@pytest.mark.parametrize(("key", "words"), [("code", "f32"), ("code", "sign(1)"), ("select", "all"), ("select", "top")])
def test_a_forged_phase_is_refused(key: str, words: str) -> None:
    data = plan_to_json(plain())
    data["pushes"][0][key] = words
    with pytest.raises(ArtifactError):
        plan_from_json(data)
