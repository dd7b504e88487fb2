"""Plans as JSON: read back unchanged, and an ArtifactError for JSON that is no plan."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, FORMATS, scheme_text
from tests.support.damage import damaged_json
from tests.support.fuzz import fuzzed
from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, plan_of, plan_with
from tests.support.shipped import ALL
from tests.support.survival import plan_faults
from zenc.errors import ArtifactError
from zenc.language.files import load_file, locate
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.lower import lower
from zenc.plan.unroll import expand
from zenc.scheme.resolve import resolve
from zenc.verify.proof import verify


def shipped_plan(name: str, size: int | None) -> Plan:
    return lower(resolve(load_file(locate(name)))[0], size)


def there_and_back(plan: Plan) -> Plan:
    return plan_from_json(json.loads(plan.text()))


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_combination_comes_back(combination):
    for size, push in zip((None, 1, 2, 3, 5, 7, 16), FORMATS, strict=True):
        plan = plan_of(scheme_text(*combination, push, "auto", "row"), size)
        assert there_and_back(plan) == plan
        assert there_and_back(plan).digest == plan.digest


@fuzzed(60)
@given(name=st.sampled_from(ALL), size=st.none() | st.integers(1, 2000))
def test_shipped_schemes_come_back(name, size):
    plan = shipped_plan(name, size)
    again = there_and_back(plan)
    assert again == plan and again.digest == plan.digest and again.text() == plan.text()


def test_parameters_keep_their_order_and_kind():
    text = scheme_text(*COMBINATIONS[-1]).replace("combination", "mine(zeta = 3, alpha = 2.5)")
    plan = plan_of(text)
    assert there_and_back(plan).parameters == (("zeta", 3), ("alpha", 2.5))


def test_places_come_back():
    plan = plan_with(DIRECT_PUSH, DIRECT_PULL)
    source = plan.of(PhaseKind.PUSH)[0].span.source
    data = plan.to_json()
    for sources in ((source,), ()):
        again = plan_from_json(data, sources)
        mine = [send.span for send in expand(plan, 3).sends]
        assert [str(send.span) for send in expand(again, 3).sends] == [str(span) for span in mine]
    assert plan_from_json(data, (source,)).of(PhaseKind.PUSH)[0].span.source.text == source.text


def test_the_digest_is_of_the_meaning_alone():
    plain = plan_with(DIRECT_PUSH, DIRECT_PULL)
    moved = plan_with("\n\n" + DIRECT_PUSH, DIRECT_PULL)
    other = plan_with(DIRECT_PUSH.replace("1 ..", "1 + 0 .."), DIRECT_PULL)
    assert moved.digest == plain.digest and moved.to_json() != plain.to_json()
    assert other.digest != plain.digest


def test_plans_are_small_for_large_groups():
    for name in ALL:
        assert len(shipped_plan(name, 1024).text()) < 8000


def test_a_plan_that_was_read_is_proved_as_well():
    plan = shipped_plan("balanced", 5)
    assert verify(there_and_back(plan), 5)[1] == verify(plan, 5)[1]


def sample() -> dict[str, Any]:
    """Return a plan with statements of every kind."""
    push = (
        "let far = size / 2\nfor d in 1 .. size - 1 { if d == far { step { send all of rank to (rank + d) mod size } } "
        "else { step { send parts 0 .. 0 of rank to (rank + d) mod size\n"
        "send part 0 of rank to 0 where rank == 0 and d == 0 } } }"
    )
    plan = plan_with(push, "", aggregation="one_shot", parts="partition: centralization")
    verify(plan, 5)
    return json.loads(plan.text())


def test_every_kind_of_statement_comes_back():
    data = sample()
    assert plan_from_json(data).to_json() == data


@pytest.mark.parametrize("key", ["scheme", "doc", "parameters", "size", "mapping", "unit", "tiers", "pushes",
                                 "pulls"])  # fmt: skip
def test_a_missing_field(key):
    data = sample()
    del data[key]
    with pytest.raises(ArtifactError, match="bad-plan"):
        plan_from_json(data)


@pytest.mark.parametrize("version", [None, 0, 1, "2", [2]])
def test_another_version(version):
    with pytest.raises(ArtifactError, match="other-version"):
        plan_from_json({**sample(), "zenc_plan": version})


STEP = {"step": [{"send": "all", "to": "0", "where": "rank == 9"}]}


@pytest.mark.parametrize(
    "moves",
    [
        [{"send": "all", "to": "0"}], [{"step": [STEP]}], [{"step": [{"send": "all", "to": "nobody"}]}],
        [{"step": [{"send": "all", "to": "log2(1, 2)"}]}], [{"step": [{"send": "all", "to": "cos(1)"}]}],
        [{"step": [{"send": "every 1", "to": "0"}]}], [{"step": [{"send": 7, "to": "0"}]}],
        [{"step": [{"send": "part 0 part 1", "to": "0"}]}], [{"step": [{"send": "all", "to": "0 } }"}]}],
        [{"step": [{"send": "all", "to": 0}]}], [{**STEP, "at": "mine.zen:1:99999999999999"}],
        [{**STEP, "at": "mine.zen:0:1"}], [{**STEP, "at": 3}], [{**STEP, "at": "mine.zen"}], [{"dance": []}],
        ["step"], {"step": []}, None,
    ],
)  # fmt: skip
def test_moves_that_are_none(moves):
    data = sample()
    data["pushes"][0]["moves"] = moves
    with pytest.raises(ArtifactError, match="bad-plan"):
        plan_from_json(data)


PERMUTED = {"kind": "permutation", "seed": 3, "block": "auto"}
HASHED = {"kind": "hierarchical_hash", "k": 3, "r1": 2.0, "r2": 0.2, "seed": 7}


def test_every_mapping_comes_back():
    for mapping in ({"kind": "contiguous"}, PERMUTED, {**PERMUTED, "block": 16}, HASHED):
        data = {**sample(), "mapping": mapping}
        assert plan_from_json(data).to_json() == data


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", 0), ("size", -3), ("size", 1 << 40), ("size", True), ("size", 2.0), ("scheme", 3),
        ("parameters", {"seed": "7"}), ("parameters", []), ("unit", None), ("tiers", []), ("tiers", {}),
        ("pushes", []), ("pulls", [{"tier": 1, "format": "auto", "moves": []}]),
        *(("mapping", {**PERMUTED, key: value}) for key, value in (("seed", -1), ("seed", 1 << 64), ("block", 4))),
        ("mapping", {"kind": "permutation", "seed": 3}), ("mapping", {"kind": "shuffle"}), ("mapping", "contiguous"),
        *(("mapping", {**HASHED, **wrong}) for wrong in (
            {"k": 0}, {"k": 17}, {"k": 3.0}, {"k": True}, {"r1": -1.0}, {"r1": 65.0}, {"r1": float("nan")}, {"r1": "2"},
            {"r2": float("inf")}, {"r2": None}, {"seed": -1}, {"seed": 1 << 64},
        )),
    ],
)  # fmt: skip
def test_values_that_none_can_have(key, value):
    with pytest.raises(ArtifactError, match="bad-plan"):
        plan_from_json({**sample(), key: value})


@pytest.mark.parametrize("data", [None, 3, [], "plan", [sample()]])
def test_json_of_another_kind(data):
    with pytest.raises(ArtifactError):
        plan_from_json(data)


def test_nesting_without_end():
    data = sample()
    block = [STEP]
    for _ in range(5000):
        block = [{"if": "size > 0", "then": block, "else": []}]
    data["pushes"][0]["moves"] = block
    with pytest.raises(ArtifactError, match="bad-plan"):
        plan_from_json(data)


AMONG_HOLDERS = shipped_plan("holders", None).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"announce": {**AMONG_HOLDERS["announce"], "tier": 1}},
        {"announce": {**AMONG_HOLDERS["announce"], "format": "dense"}},
        {"pushes": [{**AMONG_HOLDERS["pushes"][0], "format": "coo"}]},
        {"tiers": [{**AMONG_HOLDERS["tiers"][0], "partition": "centralization"}]},
        {"tiers": [{**AMONG_HOLDERS["tiers"][0], "size": 2}, *AMONG_HOLDERS["tiers"]]},
        {"mapping": {"kind": "contiguous"}},
        {"pushes": [{**AMONG_HOLDERS["pushes"][0], "merge": "top(0.1)"}]},
    ],
)
def test_what_is_not_for_holders(change):
    assert plan_from_json(AMONG_HOLDERS).announces
    with pytest.raises(ArtifactError, match="bad-plan"):
        plan_from_json({**AMONG_HOLDERS, **change})


MERGING = shipped_plan("gtop_k", None).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"pushes": [{**MERGING["pushes"][0], "merge": "sketch(3, 0.1)"}]},
        {"pulls": [{**MERGING["pulls"][0], "merge": "top(0.1)"}]},
        {"tiers": [{**MERGING["tiers"][0], "aggregation": "one_shot"}]},
    ],
)
def test_sums_that_nobody_makes_on_the_way(change):
    assert plan_from_json(MERGING).phases[0].merge == plan_from_json(MERGING).phases[0].select
    with pytest.raises(ArtifactError, match="bad-plan"):
        plan_from_json({**MERGING, **change})


WORDS = ["rank", "all", "part rank", "1 / (rank - 1)", "size << 70", "step", "send", "to", "at", "if", "a.zen:1:1"]


@fuzzed(400)
@given(st.sampled_from([sample(), AMONG_HOLDERS]).flatmap(lambda plan: damaged_json(plan, WORDS)))
def test_damaged_json_is_an_error_or_another_plan(data):
    assert plan_faults(data) == []
