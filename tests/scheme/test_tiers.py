"""Tiers: names of their schemes, numbers of members, and options that all of them share."""

import time
from pathlib import Path

import pytest

from tests.support.refusals import refusals
from zenc.errors import SchemeError
from zenc.language.files import load_file, load_text
from zenc.scheme.model import Aggregation, Contiguous, Format, Partition, Permutation, Scheme, Unit
from zenc.scheme.references import DEEPEST
from zenc.scheme.resolve import resolve

FLAT = "communication: ring aggregation: incremental partition: parallelism balance: imbalanced"


def scheme_of(text: str, name: str | None = None, levels: dict[str, int] | None = None, **given: int) -> Scheme:
    scheme, warnings = resolve(load_text(text, "mine.zen"), name, given, levels)
    assert warnings == ()
    return scheme


def refused(text: str, name: str | None = None, levels: dict[str, int] | None = None) -> list[tuple[str, str]]:
    refused = refusals(SchemeError, resolve, load_text(text, "mine.zen"), name, None, levels)
    return [(diagnostic.id, diagnostic.message) for diagnostic in refused]


def tiers_of(scheme: Scheme) -> list[tuple[str, int | None, str]]:
    return [(tier.name, tier.size, tier.communication.name) for tier in scheme.tiers]


def test_a_scheme_without_tiers_has_one():
    (tier,) = scheme_of(f"scheme a {{ {FLAT} push: coo }}").tiers
    assert (tier.name, tier.size, tier.push, tier.pull) == ("", None, Format.COO, Format.AUTO)
    assert (tier.aggregation, tier.partition) == (Aggregation.INCREMENTAL, Partition.PARALLELISM)


def test_tiers_stand_from_the_inside_out():
    text = "scheme a(g = 2) { tier gpu(g * 2): dense_ring tier rack(3): balanced tier top: agsparse }"
    scheme = scheme_of(text)
    assert tiers_of(scheme) == [("gpu", 4, "ring"), ("rack", 3, "point_to_point"), ("top", None, "point_to_point")]
    assert (
        scheme.tiers[-1].aggregation is Aggregation.ONE_SHOT and scheme.tiers[-1].partition is Partition.CENTRALIZATION
    )
    assert scheme_of(text, g=5).tiers[0].size == 10


def test_a_name_is_sought_here_then_in_imports_then_among_the_shipped(tmp_path: Path):
    """Each scheme resolves names in its own file."""
    (tmp_path / "other.zen").write_text(f"scheme balanced {{ {FLAT} }} scheme b {{ {FLAT} }}")
    here = f"scheme b {{ {FLAT.replace('ring', 'hierarchy')} }}"
    text = f'import "other.zen" {here} scheme a {{ tier x(2): b tier y(2): balanced tier z: dense_ring }}'
    (tmp_path / "mine.zen").write_text(text)
    scheme, _ = resolve(load_file(tmp_path / "mine.zen"), "a")
    assert [name for _, _, name in tiers_of(scheme)] == ["hierarchy", "ring", "ring"]
    assert isinstance(scheme.mapping, Contiguous)


def test_a_shipped_scheme_may_have_a_schedule_of_a_name_that_is_taken():
    text = (
        "schedule torus { push { step { send all to 0 where rank == 9 } } pull { } } "
        "scheme a { tier x(2): dense_ring tier y: torus2d }"
    )
    communication = resolve(load_text(text), "a")[0].tiers[1].communication
    assert communication.push == scheme_of("scheme a { tier x: torus2d }").tiers[-1].communication.push


def test_arguments_reach_the_schemes_of_tiers():
    text = "scheme a(s = 3) { tier x(2): dense_ring tier y: balanced(seed = s + 1) }"
    assert scheme_of(text).mapping == Permutation(4)
    assert scheme_of(text, s=8).mapping == Permutation(9)
    assert scheme_of(text, s=8).parameters == (("s", 8),)
    assert scheme_of("scheme a { tier x(2): dense_ring tier y: balanced(7) }").mapping == Permutation(7)


def test_one_mapping_for_all():
    both = "tier x(2): balanced(1) tier y: balanced(1)"
    assert scheme_of(f"scheme a {{ {both} }}").mapping == Permutation(1)
    differing = "tier x(2): balanced(1) tier y: balanced(2)"
    assert refused(f"scheme a {{ {differing} }}") == [
        ("conflicting-tiers", "tiers 'x' and 'y' differ in their balance")
    ]
    own = scheme_of(f"scheme a {{ {differing} balance: balanced by permutation(3) }}")
    assert own.mapping == Permutation(3)
    assert scheme_of(f"scheme a {{ {both} balance: imbalanced }}").mapping == Contiguous()
    assert scheme_of("scheme a { tier x(2): dense_ring tier y: dense_ring }").mapping == Contiguous()


def test_one_kind_of_units_for_all():
    schemes = f"scheme r {{ {FLAT} unit: row }} scheme e {{ {FLAT} unit: element }} scheme f {{ {FLAT} }} "
    assert scheme_of(schemes + "scheme a { tier x(2): f tier y: r }", "a").unit is Unit.ROW
    assert scheme_of(schemes + "scheme a { tier x(2): f tier y: f }", "a").unit is Unit.AUTO
    assert scheme_of(schemes + "scheme a { tier x(2): e tier y: r unit: row }", "a").unit is Unit.ROW
    assert refused(schemes + "scheme a { tier x(2): e tier y: r }", "a") == [
        ("conflicting-tiers", "tiers 'x' and 'y' differ in their unit")
    ]


def test_a_tier_of_tiers_stands_for_them():
    text = (
        "scheme two(s = 2) { tier socket(s): dense_ring tier node: balanced } "
        "scheme a { tier machine(8): two(4) tier top: two }"
    )
    assert tiers_of(scheme_of(text, "a")) == [
        ("machine.socket", 4, "ring"), ("machine.node", 2, "point_to_point"),
        ("top.socket", 2, "ring"), ("top.node", None, "point_to_point"),
    ]  # fmt: skip
    uneven = text.replace("machine(8)", "machine(6)")
    message = "tier 'machine' has 6 members, and the tiers of 'two' make groups of 4"
    assert refused(uneven, "a") == [("tier-size", message)]


def test_sizes_from_levels():
    text = "scheme a { tier node: dense_ring tier rack(3): dense_ring tier top: balanced }"
    assert [tier.size for tier in scheme_of(text, levels={"node": 4, "rack": 5, "top": 9}).tiers] == [4, 3, None]
    both = text.replace("rack(3)", "rack")
    assert [tier.size for tier in scheme_of(both, levels={"rack": 20, "node": 4}).tiers] == [4, 5, None]
    assert refused(both, levels={"node": 4, "rack": 6}) == [("tier-size", "tier 'rack' has no size")]
    nested = "scheme b { tier node: dense_ring tier rack: balanced } scheme a { tier gpu(2): dense_ring tier top: b }"
    assert [tier.size for tier in scheme_of(nested, "a", {"node": 8}).tiers] == [2, 4, None]
    (diagnostic,) = refusals(SchemeError, resolve, load_text(text), None, None, {"nodes": 4})
    assert diagnostic.id == "tier-size" and diagnostic.notes == ("levels: nodes (did you mean 'nodes'?)",)


OUTER = "tier y: balanced"
LEFT = "'y' is the outermost tier, which takes what is left of the group"
NONE = "'dense_ring' takes no arguments, and this is number 1"
SEED = "'balanced' takes no argument 'sed'; one of seed (did you mean 'seed'?)"


@pytest.mark.parametrize(
    ("tiers", "id", "message"),
    [
        (f"tier x: dense_ring {OUTER}", "tier-size", "tier 'x' has no size"),
        ("tier x(2): dense_ring tier y(2): balanced", "tier-size", LEFT),
        (f"tier x(0): dense_ring {OUTER}", "wrong-range", "a tier has 1 to 65,536 members, not 0"),
        (f"tier x(1 << 20): dense_ring {OUTER}", "wrong-range", "a tier has 1 to 65,536 members, not 1048576"),
        (f"tier x(k): dense_ring {OUTER}", "unknown-name", "'k' is no parameter of this scheme"),
        ("tier x(2): dense_ring tier x: balanced", "duplicate-name", "there is another tier 'x'"),
        (f"tier x(2): dense_ring(3) {OUTER}", "wrong-arguments", NONE),
        (f"tier x(2): dense_ring {OUTER}(sed = 1)", "wrong-arguments", SEED),
        (f"tier x(2): dense_ring {OUTER}(2.5)", "wrong-type", "parameter 'seed' must be an integer, not '2.5'"),
        (f"tier x(2): a {OUTER}", "recursive-tier", "'a' is a tier of itself: a -> a"),
        (f"tier x(2): dense_ring {OUTER} push: coo", "tiers-and-dimensions",
         "a scheme of tiers has no push of its own: its tiers say it"),
    ],
)  # fmt: skip
def test_what_tiers_cannot_be(tiers, id, message):
    assert refused(f"scheme a {{ {tiers} }}") == [(id, message)]


def test_a_slip_in_a_name():
    ((id, message),) = refused("scheme a { tier x(2): dense_rnig tier y: balanced }")
    assert id == "unknown-value" and message.startswith("unknown scheme 'dense_rnig'; one of a, ")
    assert message.endswith("(did you mean 'dense_ring'?)")


def test_schemes_that_are_tiers_of_each_other():
    text = "scheme a { tier x(2): dense_ring tier y: b } scheme b { tier x(2): a tier y: balanced }"
    assert refused(text, "a") == [("recursive-tier", "'a' is a tier of itself: a -> b -> a")]


def test_tiers_of_tiers_nest_as_deep_as_is_said():
    chain = " ".join(f"scheme c{k + 1} {{ tier x{k}(2): dense_ring tier y{k}: c{k} }}" for k in range(DEEPEST))
    text = f"scheme c0 {{ {FLAT} }} {chain}"
    assert len(resolve(load_text(text), f"c{DEEPEST - 1}")[0].tiers) == DEEPEST
    assert set(refused(text, f"c{DEEPEST}")) == {("wrong-range", f"tiers of tiers nest at most {DEEPEST} deep")}


def test_there_are_only_so_many_tiers():
    """The error comes at once, however schemes refer to each other."""
    many = " ".join(f"tier t{k}(2): dense_ring" for k in range(200))
    few = "a scheme has at most 8 tiers, with those of its tiers"
    assert refused(f"scheme a {{ {many} tier top: balanced }}") == [("wrong-range", few)]
    pairs = [f"scheme a{k + 1} {{ tier x({1 << k}): a{k} tier y: a{k} }}" for k in range(12)]
    text = f"scheme a0 {{ {FLAT} }} {' '.join(pairs)}"
    assert len(resolve(load_text(text), "a3")[0].tiers) == 8
    nine = text + " scheme b { tier x(16): a2 tier y(16): a2 tier z: a0 }"
    assert refused(nine, "b") == [("wrong-range", few)]
    started = time.process_time()
    assert ("wrong-range", "tiers of tiers nest at most 4 deep") in refused(text, "a12")
    assert time.process_time() - started < 5


def test_what_is_wrong_in_a_tiers_scheme_is_told_where_it_is():
    text = f"scheme b {{ {FLAT.replace('ring', 'rong')} }} scheme a {{ tier x(2): b tier y: balanced }}"
    (diagnostic,) = refusals(SchemeError, resolve, load_text(text, "mine.zen"), "a")
    assert diagnostic.id == "unknown-value" and diagnostic.span is not None
    assert diagnostic.span.source.text[diagnostic.span.start : diagnostic.span.end] == "rong"


def test_schedules_beside_a_scheme_of_tiers_are_checked():
    text = "schedule s { push { } } scheme a { tier x(2): dense_ring tier y: balanced }"
    assert refused(text) == [("missing-phase", "this schedule has no pull block")]
    both = text.replace("balanced }", f"b }} scheme b {{ {FLAT} }}")
    assert refused(both, "a") == [("missing-phase", "this schedule has no pull block")]


def test_a_parameter_that_no_tier_uses_is_worth_a_warning():
    _, warnings = resolve(load_text("scheme a(k = 2, s = 1) { tier x(2): dense_ring tier y: balanced(s) }"))
    assert [warning.message for warning in warnings] == ["parameter 'k' is used nowhere"]


def test_the_texts_of_shipped_tiers_come_along():
    names = [source.name for source in scheme_of("scheme a { tier x(2): dense_ring tier y: balanced }").sources]
    assert names[0] == "mine.zen" and len(names) == len(set(names))
    assert {"schemes/dense_ring.zen", "schemes/balanced.zen", "schemes/patterns.zen"} <= set(names)
