"""Selections and codes: words to data and back, errors in them, and their place in plans."""

import json
import re
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import fuzzed
from tests.support.refusals import refusals
from zenc.common.resources import directory
from zenc.errors import ArtifactError, Diagnostic, SchemeError
from zenc.language.files import COMPRESSORS, load_text
from zenc.language.parse import parse_phrase
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme import compression as c
from zenc.scheme.arguments import Environment
from zenc.scheme.collector import Collector
from zenc.scheme.compression_words import TABLES, arguments_of, read_selection, selection_text, words_of
from zenc.scheme.model import Scheme
from zenc.scheme.resolve import resolve, resolve_any

REST = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"


def scheme_of(entries: str, parameters: str = "") -> Scheme:
    return resolve(load_text(f"scheme mine{parameters} {{ {REST} {entries} }}", "t.zen"))[0]


def problems(entries: str, parameters: str = "") -> tuple[Diagnostic, ...]:
    return refusals(SchemeError, scheme_of, entries, parameters)


@pytest.mark.parametrize(
    ("entries", "field", "meaning"),
    [
        ("push: coo as f16", "push_code", c.Rounded("f16")),
        ("push: coo as bf16 by chance", "push_code", c.Rounded("bf16", "chance")),
        ("push: dense as sign(2048)", "push_code", c.Sign(2048)),
        ("pull: dense as int(4, 512)", "pull_code", c.Integers(4, 512)),
        ("push: dense as fixed(8) by asc", "push_code", c.Fixed(8, "asc")),
        ("push: auto as levels(block = 64)", "push_code", c.RandomLevels(64, 64)),
        ("select: top(0.01)", "select", (c.Top(0.01),)),
        ("select: top(1) by sampled(0.02)", "select", (c.Top(1.0, c.Sampled(0.02)),)),
        ("select: probable(0.05) then sketch(3, 0.02)", "select", (c.Probable(0.05), c.Sketch(3, 0.02))),
        ("select: all", "select", ()),
        ("compress: dgc(0.02)", "select", (c.Top(0.02, c.Sampled(0.01)),)),
        ("compress: sign(64) push: dense", "pull_code", c.Sign(64)),
        ("reselect: top(0.01)", "reselect", (c.Top(0.01),)),
        ("merge: top(0.01) by reused(4)", "merge", (c.Top(0.01, c.Reused(4)),)),
        ("push: dense as f16", "push_code", c.Rounded("f16")),
    ],
)
def test_what_the_words_of_a_tier_mean(entries: str, field: str, meaning: object) -> None:
    feedback = "" if "compress" in entries else " feedback: residual"
    (tier,) = scheme_of(entries + feedback).tiers
    assert getattr(tier, field) == meaning


@pytest.mark.parametrize(
    ("entries", "field", "meaning"),
    [
        ("feedback: residual", "feedback", c.Residual()),
        ("feedback: rounding", "feedback", c.Rounding()),
        ("select: top(0.1) feedback: decay(0.9)", "feedback", c.Decay(0.9)),
        ("select: top(0.1) feedback: residual transform: dct(100)", "transform", c.Dct(100)),
        ("compress: demo(chunk = 32)", "transform", c.Dct(32)),
        ("select: top(0.1) feedback: residual transform: none", "transform", None),
        ("select: top(0.1) feedback: momentum(0.9)", "feedback", c.Momentum(0.9)),
        ("compress: dgc(m = 0.5)", "feedback", c.Momentum(0.5)),
        ("compress: qsgd push: dense", "feedback", None),
        ("feedback: none", "feedback", None),
        ("push: dense as vote feedback: decay(0)", "feedback", None),
        ("compress: signum push: dense", "feedback", c.Decay(0.9)),
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
        ("project: lowrank(0)", "wrong-range", "'r' of 'lowrank' is 1 or more and at most 1,024, not 0"),
        (
            "project: lowrnk(2)",
            "unknown-value",
            "unknown projection 'lowrnk'; one of lowrank, none (did you mean 'lowrank'?)",
        ),
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
        ("transform: dct(1)", "wrong-range", "'chunk' of 'dct' is 2 or more and at most 1,024, not 1"),
        ("transform: hadamard(48)", "wrong-range", "is a power of two, 2 or more and at most 1,024, not 48"),
        ("transform: hadamard(2048)", "wrong-range", "not 2048"),
        ("transform: dtc(8)", "unknown-value", "unknown transform 'dtc'; one of dct, hadamard, none (did you mean"),
        ("feedback: decay(2)", "wrong-range", "'beta' of 'decay' is 0 or more and at most 1.0, not 2"),
        ("feedback: residul", "unknown-value", "did you mean 'residual'?"),
        ("feedback: residual then momentum", "wrong-value", "it stands alone"),
        ("warmup: dense", "wrong-arguments", "'dense' needs a value for 'steps'"),
    ],
)
def test_slips_are_told(entries: str, id: str, message: str) -> None:
    (diagnostic,) = problems(entries)
    assert diagnostic.id == id and message in diagnostic.message, diagnostic


def one_of(made: Any) -> st.SearchStrategy[Any]:
    """Draw any value of a class of the tables, within the ranges of its fields."""
    given: dict[str, st.SearchStrategy[Any]] = {}
    for field in arguments_of(made):
        least, most = field.metadata["range"]
        integer = field.type == "int"
        given[field.name] = st.integers(least, most) if integer else st.floats(least, most, exclude_min=not least)
        if "power" in field.metadata:
            given[field.name] = st.sampled_from([2, 64, most])
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
    feedback=st.none() | one_of(c.Residual) | one_of(c.Momentum),
    warmup=st.none() | ONE["warmup"],
    selection=st.lists(one_of(c.Top) | one_of(c.Above) | one_of(c.RandomEach), min_size=1, max_size=2).map(tuple),
)
def test_plans_keep_it(
    code: c.Code, feedback: c.Feedback | None, warmup: c.Warmup | None, selection: tuple[c.Selection, ...]
) -> None:
    feedback = None if isinstance(code, c.Vote) else feedback
    keepers = {"feedback": feedback, "warmup": warmup}
    kept = " ".join(f"{key}: {words_of(value) if value else 'none'}" for key, value in keepers.items())
    text = f"select: {selection_text(selection)} push: coo as {words_of(code)} pull: dense {kept}"
    plan = lower(scheme_of(text), 3)
    assert (plan.phases[0].code, plan.phases[0].select, plan.phases[1].code) == (code, selection, None)
    assert (plan.feedback, plan.warmup, plan.is_lossy) == (feedback, warmup, True)
    again = plan_from_json(json.loads(plan.text()))
    assert again == plan and again.digest == plan.digest


def plain() -> Plan:
    return lower(scheme_of(""), 3)


def test_a_plan_without_it_has_no_word_of_it() -> None:
    text = plain().text()
    assert not plain().is_lossy and not any(f'"{key}"' in text for key in ("code", "select", "feedback", "warmup"))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("feedback", "none"), ("feedback", "keep"), ("warmup", "dense(0)"), ("warmup", 3), ("feedback", "top(0.1)"),
        ("transform", "dct(1)"), ("transform", "dct(64)"), ("transform", "top(0.1)"),
    ],
)  # fmt: skip
def test_a_forged_keeper_is_refused(key: str, words: object) -> None:
    with pytest.raises(ArtifactError):
        plan_from_json({**plain().to_json(), key: words})


def test_a_forged_vote_by_momentum_is_refused() -> None:
    told = lower(scheme_of("select: top(0.1) push: coo as vote feedback: none"), 3).to_json()
    assert plan_from_json(told).is_lossy
    with pytest.raises(ArtifactError, match="of all values"):
        plan_from_json({**told, "feedback": "decay(0.9)"})


MINE = "compress mine(d, bits = 4) { select: top(d) code: none then int(bits) feedback: residual }"


def found_in(text: str) -> list[tuple[str, str]]:
    """Return ids and severities of all diagnostics of a text."""
    try:
        return [(each.id, each.severity) for each in resolve(load_text(text, "t.zen"), "mine")[1]]
    except SchemeError as error:
        return [(each.id, each.severity) for each in error.diagnostics]


def test_a_compressor_of_the_text_comes_first() -> None:
    text = f"compress dgc {{ code: f16 }} {MINE} scheme mine {{ {REST} compress: dgc }}"
    (tier,) = resolve(load_text(text, "t.zen"), "mine")[0].tiers
    assert tier.select == () and (tier.push_code, tier.pull_code) == (c.Rounded("f16"), c.Rounded("f16"))
    (tier,) = resolve(load_text(f"{MINE} scheme mine {{ {REST} compress: mine(0.1) }}", "t.zen"), "mine")[0].tiers
    assert (tier.select, tier.push_code, tier.pull_code) == ((c.Top(0.1),), None, c.Integers(4))


def test_only_programs_that_compress_read_the_compressors() -> None:
    names = [[file.source.name for file in load_text(text, "t.zen").files] for text in (f"scheme a {{ {REST} }}", MINE)]
    assert names == [["t.zen", "schemes/patterns.zen"]] * 2
    compressing = load_text(f"scheme a {{ {REST} compress: half }}", "t.zen")
    assert "schemes/compressors.zen" in [source.name for source in compressing.sources]


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("compress: mine", "wrong-arguments"),
        ("compress: mine(0.1, 2, 3)", "wrong-arguments"),
        ("compress: mine(2)", "wrong-range"),
        ("compress: mine(0.1) feedback: residual", "conflicting-compression"),
        ("compress: mine(0.1) pull: auto as f16", "conflicting-compression"),
        ("compress: half then half", "wrong-value"),
        ("compress: hlaf", "unknown-value"),
        ("select: random(0.1) then top(0.1) feedback: residual", "not-linear"),
        ("select: probable(0.1) pull: bitmap feedback: residual", "not-linear"),
        ("select: heavy(0.1) then sketch(3, 0.1) feedback: residual", "not-linear"),
        ("select: top(0.1) reselect: random(0.1) feedback: residual", "not-linear"),
        ("select: top(0.1) merge: sketch(3, 0.1) feedback: residual", "not-linear"),
        ("select: top(0.1) merge: top(0.1) feedback: residual", None),
        ("merge: top(0.1)", "needs-feedback"),
        ("project: lowrank(2) select: top(0.1) feedback: residual", "not-linear"),
        ("project: lowrank(2) select: random(0.1) feedback: residual", "not-linear"),
        ("project: lowrank(2) pull: bitmap feedback: residual", "not-linear"),
        ("project: lowrank(2)", "needs-feedback"),
        ("transform: dct feedback: residual", "wrong-value"),
        ("transform: dct project: lowrank(2) feedback: residual", "not-linear"),
        ("transform: dct select: sketch(3, 0.02) feedback: residual", "not-linear"),
        ("transform: dct select: top(0.1) feedback: momentum(0.9)", "conflicting-compression"),
        ("transform: dct select: top(0.1)", "needs-feedback"),
        ("transform: dct select: top(0.1) feedback: shifted", None),
        ("transform: dct select: top(0.1) reselect: top(0.1) push: coo as sign feedback: decay", None),
        ("compress: demo transform: dct(8)", "conflicting-compression"),
        ("pull: dense as vote feedback: decay", None),
        ("push: dense as vote pull: dense as f16 feedback: decay", "conflicting-compression"),
        ("select: top(0.1) push: coo as vote feedback: decay", "conflicting-compression"),
        ("project: lowrank(2) feedback: residual", None),
        ("push: dense as sign", "needs-feedback"),
        ("pull: dense as vote", "needs-feedback"),
        ("pull: dense as vote feedback: residual", "conflicting-compression"),
        ("push: dense as vote feedback: none", None),
        ("push: dense as fixed(8) pull: dense as fixed(4) feedback: residual", "conflicting-compression"),
        ("pull: dense as fixed(8) feedback: residual", "conflicting-compression"),
        ("push: dense as sign feedback: momentum", "wrong-value"),
        ("compress: qsgd select: top(0.1)", None),
        ("push: dense as f16", None),
        ("push: dense as ternary", None),
        ("push: dense as sign feedback: none", None),
        ("push: coo as sign feedback: none", None),
        ("push: coo as sign select: top(0.1) feedback: residual", None),
        ("select: sketch(3, 0.02) push: dense pull: auto as f16 feedback: residual", None),
    ],
)
def test_what_may_stand_beside_what(text: str, id: str | None) -> None:
    assert found_in(f"{MINE} scheme mine {{ {REST} {text} }}") == ([(id, "error")] if id else [])


def test_what_changes_or_gains_nothing_is_warned_of() -> None:
    for entries, id in [
        ("feedback: residual", "no-effect"),
        ("warmup: dense(5) push: auto as f16", "no-effect"),
        ("select: top(0.3) feedback: residual warmup: falling(5)", "no-effect"),
        ("select: above(0.3) feedback: residual warmup: falling(5)", "no-effect"),
        ("select: top(0.1) feedback: residual push: dense", "no-gain"),
        ("select: top(0.3) then random_each(0.2) feedback: residual push: coo", "no-gain"),
        ("select: top(0.1) reselect: top(0.6) feedback: residual pull: coo", "no-gain"),
        ("select: top(0.1) merge: top(0.6) feedback: residual push: coo", "no-gain"),
        ("select: probable(0.5) then sketch(3, 0.5) feedback: residual push: dense", "no-gain"),
        ("push: coo as sign feedback: residual", "no-gain"),
        ("push: dense as sign pull: coo as int feedback: residual", "no-gain"),
    ]:
        assert found_in(f"scheme mine {{ {REST} {entries} }}") == [(id, "warning")], entries


HOLDERS = "communication: point_to_point aggregation: incremental partition: parallelism balance: balanced by holders"
TOP = f"scheme top {{ {REST} select: top(0.1) feedback: residual }}"
PLAIN = f"scheme plain {{ {REST} push: dense pull: dense }}"
FIXED = f"scheme exact {{ {REST} push: dense as fixed(8) feedback: residual }}"
ONE_SHOT = f"scheme mine {{ {REST.replace('incremental', 'one_shot')} merge: top(0.1) feedback: residual }}"
DEMO = f"scheme demo {{ {REST} compress: demo }}"
DRAWN = f"scheme drawn {{ {REST} push: dense pull: dense select: random(0.1) feedback: residual }}"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (f"scheme mine {{ {HOLDERS} push: auto as f16 }}", ["not-with-holders"]),
        (f"scheme mine {{ {HOLDERS} select: top(0.1) reselect: top(0.1) feedback: residual }}", ["not-with-holders"]),
        (f"scheme mine {{ {HOLDERS} merge: top(0.1) feedback: residual }}", ["not-with-holders"]),
        (f"scheme mine {{ {HOLDERS} select: random(0.1) feedback: residual }}", ["not-with-holders"]),
        (f"scheme mine {{ {HOLDERS} select: top(0.1) feedback: residual }}", []),
        (f"{PLAIN} {TOP} scheme mine {{ tier a(2): plain tier b: top }}", []),
        (f"{PLAIN} {TOP} scheme mine {{ tier a(2): top tier b: plain }}", []),
        (f"{PLAIN} {DRAWN} scheme mine {{ tier a(2): plain tier b: drawn }}", ["not-linear"]),
        (f"{PLAIN} {DRAWN} scheme mine {{ tier a(2): drawn tier b: plain }}", []),
        (f"{PLAIN} {DEMO} scheme mine {{ tier a(2): plain tier b: demo }}", ["wrong-value"]),
        (f"{PLAIN} {DEMO} scheme mine {{ tier a(2): demo tier b: plain }}", []),
        (f"{TOP} {DEMO} scheme mine {{ tier a(2): demo tier b: top }}", ["conflicting-tiers"]),
        (f"{TOP} {DEMO} scheme mine {{ tier a(2): demo tier b: top feedback: residual transform: dct(8) }}", []),
        (f"{PLAIN} {FIXED} scheme mine {{ tier a(2): plain tier b: exact }}", ["conflicting-compression"]),
        (f"{FIXED} scheme mine {{ tier a(2): exact tier b: exact }}", []),
        (f"{PLAIN} scheme mine {{ tier a(2): plain tier b: plain feedback: residual }}", ["no-effect"]),
        (f"{FIXED} scheme mine {{ tier a(2): exact tier b: exact feedback: momentum }}", ["wrong-value"]),
        (f"{PLAIN} scheme mine {{ tier a(2): plain tier b: plain compress: topk }}", ["tiers-and-dimensions"]),
        (f"{PLAIN} scheme mine {{ tier a(2): plain tier b: plain select: all }}", ["tiers-and-dimensions"]),
        (f"{PLAIN} scheme mine {{ tier a(2): plain tier b: plain merge: all }}", ["tiers-and-dimensions"]),
        (ONE_SHOT, ["wrong-value"]),
    ],
)
def test_holders_and_tiers(text: str, ids: list[str]) -> None:
    assert [id for id, _ in found_in(text)] == ids


def test_tiers_agree_on_a_keeper_or_the_scheme_says_one() -> None:
    momentum = TOP.replace("top {", "dgc {").replace("residual", "momentum")
    tiers = f"{TOP} {momentum} scheme mine {{ tier a(2): top tier b: dgc"
    assert found_in(f"{tiers} }}") == [("conflicting-tiers", "error")]
    assert resolve(load_text(f"{tiers} feedback: residual }}", "t.zen"), "mine")[0].feedback == c.Residual()
    assert (
        resolve(load_text(f"{PLAIN} {TOP} scheme mine {{ tier a(2): plain tier b: top }}", "t.zen"), "mine")[0].feedback
        == c.Residual()
    )


def test_candidates_keep_the_same() -> None:
    for other, ids in (
        (TOP, ["conflicting-candidates"] * 2),
        (PLAIN.replace("plain", "top").replace("dense", "coo"), []),
    ):
        text = f"{PLAIN} {other} scheme mine {{ choose from [plain, top] }}"
        try:
            found = [each.id for each in resolve_any(load_text(text, "t.zen"), "mine")[1]]
        except SchemeError as error:
            found = [each.id for each in error.diagnostics]
        assert found == ids


@pytest.mark.parametrize(
    ("phase", "key", "words"),
    [
        ("pushes", "code", "f32"), ("pushes", "code", "sign(1)"), ("pushes", "select", "all"),
        ("pushes", "select", "top"), ("pulls", "select", "random(0.1)"), ("pulls", "project", "lowrank(2)"),
        ("pushes", "select", "random(0.1) then top(0.1)"), ("pulls", "code", "fixed(8)"),
    ],
)  # fmt: skip
def test_a_forged_phase_that_no_scheme_has_is_refused(phase: str, key: str, words: str) -> None:
    data = plain().to_json()
    data[phase][0][key] = words
    with pytest.raises(ArtifactError):
        plan_from_json(data)


@pytest.mark.parametrize(("phase", "key", "words"), [("pushes", "code", "f16"), ("pulls", "select", "top(0.1)")])
def test_a_forged_plan_of_holders_is_refused(phase: str, key: str, words: str) -> None:
    data = lower(resolve(load_text(f"scheme mine {{ {HOLDERS} }}", "t.zen"))[0], 3).to_json()
    assert plan_from_json(data)
    data[phase][0][key] = words
    with pytest.raises(ArtifactError):
        plan_from_json(data)


def bound(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else "2^64 - 1" if value == c.MOST_SEED else f"{value:,}"


def argument_rows() -> list[str]:
    """Return the rows of the manual's table of arguments, one for all words that take the same."""
    rows: dict[str, list[str]] = {}
    for name, made in {
        name: made for table in (*TABLES.values(), c.ESTIMATORS) for name, made in table.items()
    }.items():
        told = []
        for field in arguments_of(made):
            least, most = field.metadata["range"]
            low = "above 0" if isinstance(least, float) and not least else bound(least)
            usual = "" if field.default is MISSING else f" ({field.default:{'#x' if field.name == 'seed' else 'g'}})"
            told.append(f"{field.name} {low} to {bound(most)}{usual}")
        rows.setdefault(", ".join(told), []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {told} |" for told, names in rows.items() if told]


def test_the_manual_has_all_arguments() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    assert "\n".join(argument_rows()) in page


def test_the_manual_names_all_compressors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    (names,) = re.findall(r"comes with zenc: (.*?), in `schemes/compressors.zen`", page, re.DOTALL)
    text = (directory("schemes") / COMPRESSORS).read_text(encoding="utf-8")
    assert re.findall(r"`(\w+)`", names) == re.findall(r"^compress (\w+)", text, re.MULTILINE)
