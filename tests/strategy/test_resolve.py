"""Strategies: the rule of a tensor, names in rules, and errors in them."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as draw

from tests.support.refusals import refusals
from zenc.errors import SchemeError
from zenc.language.files import load_text
from zenc.pipeline.request import Request
from zenc.scheme.collector import pick
from zenc.scheme.model import Choice
from zenc.strategy.model import Buckets, Cuts, Fused, NamedLike, SearchedCuts, Strategy, covers, is_like
from zenc.strategy.pipeline import strategy_artifacts, verify_strategy
from zenc.strategy.resolve import STRATEGY, resolve_strategy

ESPRESSO = """
scheme across(gpus = 8) { tier node(gpus): dense_ring   tier cluster: topk_a2a(0.01) }
strategy espresso(share = 0.01, limit = 1) {
    "Two levels."
    groups: cuts(12, 40)
    tensors "transformer.wte.*": across(8) on gpu
    tensors above limit MB: across on host
    tensors "*.bias": auto
    others: choose(margin = 0.03) from [dense_ring, topk_a2a(share), one_bit]
}
"""


def strategy_of(text: str, **given: int | float) -> Strategy:
    return resolve_strategy(load_text(text, "t.zen"), None, given)[0]


def test_a_tensor_has_the_first_rule_that_matches() -> None:
    found = strategy_of(ESPRESSO, limit=2)
    assert (found.doc, found.groups, found.parameters) == (
        "Two levels.",
        Cuts((12, 40)),
        (("share", 0.01), ("limit", 2)),
    )
    names = {
        name: found.matching(name, bytes).sums.name
        for name, bytes in (("transformer.wte.w", 4_000_000), ("h.0", 2_000_001), ("h.0.bias", 2_000_000), ("h", 10))
    }
    assert list(names.values()) == ["across(gpus = 8)", "across", "auto", "espresso: others"]
    assert [rule.device for rule in found.rules] == ["gpu", "host", "", ""]
    others = found.rules[-1].sums
    assert isinstance(others, Choice) and others.settings.margin == 0.03
    assert [each.name for each in others.candidates] == ["dense_ring", "topk_a2a(density = 0.01)", "one_bit"]


@pytest.mark.parametrize(
    ("groups", "means"),
    [
        ("", Buckets()), ("groups: buckets", Buckets()), ("groups: search", SearchedCuts(2)),
        ("groups: search(most = 3)", SearchedCuts(3)), ("groups: fused", Fused()),
        ("groups: fused(4 MiB)", Fused(4 << 20)), ("groups: cuts(1, 2 * 3)", Cuts((1, 6))),
    ],
)  # fmt: skip
def test_groups(groups: str, means: object) -> None:
    assert strategy_of(f"strategy s {{ {groups} others: dense_ring }}").groups == means


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("others: dense_ring groups: cuts(12, 12)", "wrong-range: cuts ascend, and 12 stands behind 12"),
        ("others: dense_ring groups: cuts(0)", "wrong-range: a cut is 1 or more, not 0"),
        ("others: dense_ring groups: cuts", "wrong-arguments: 'cuts' needs the tensors that groups end before"),
        ("others: dense_ring groups: search(65)", "wrong-range: at most 64 groups are searched for, not 65"),
        ("others: dense_ring groups: fused(4)", "wrong-type: the size of a buffer has a unit"),
        ("others: dense_ring groups: fused(4 s)", "unknown-unit: 's' is a unit of latency, and this is a memory"),
        (
            "others: dense_ring groups: fuse",
            "unknown-value: unknown grouping 'fuse'; one of buckets, cuts, search, fused",
        ),
        ("others: dense_ring group: fused", "unknown-key: unknown key 'group'; one of groups (did you mean 'groups'?)"),
        ("tensors above 1 MB: one_bit", "missing-key: strategy 's' does not say how all other tensors are summed"),
        ('tensors "": one_bit others: dense_ring', "wrong-value: no tensor has this name"),
        ("others: one_bid", "unknown-value: unknown scheme 'one_bid'; one of "),
        ("others: dense_ring on gpus", "unknown-value: unknown device 'gpus'; one of gpu, host (did you mean 'gpu'?)"),
        (
            "others: dense_ring others: one_bit",
            "duplicate-rule: there are two rules for 'others', and the first counts",
        ),
        ("others: choose from [balanced, omnireduce]", "conflicting-candidates: candidates 'balanced' and"),
        ("others: choose from [auto, dense_ring]", "nested-choice: 'auto' chooses among schemes itself"),
    ],
)
def test_what_is_wrong_is_said(body: str, said: str) -> None:
    refused = refusals(SchemeError, strategy_of, f"strategy s {{ {body} }}")
    found = [f"{each.id}: {each.message}" for each in refused if each.severity == "error"]
    assert len(found) == 1 and found[0].startswith(said)


def test_a_file_is_about_its_strategy_where_it_has_one() -> None:
    """``--scheme`` may name another strategy of the file, or a scheme."""
    program = load_text(ESPRESSO, "t.zen")
    assert pick(STRATEGY, program) is pick(STRATEGY, program, "espresso") is program.main.strategies[0]
    assert pick(STRATEGY, program, "across") is None
    with pytest.raises(SchemeError, match="has no strategy 'expresso'") as caught:
        resolve_strategy(program, "expresso")
    assert "did you mean 'espresso'" in str(caught.value)
    with pytest.raises(SchemeError, match="several-schemes"):
        pick(STRATEGY, load_text("strategy a { others: one_bit } strategy b { others: one_bit }", "t.zen"))
    with pytest.raises(SchemeError, match="there is another strategy or scheme 'a'"):
        resolve_strategy(load_text("strategy a { others: zen } scheme a { tier x(2): zen tier y: zen }", "t.zen"))


NAMES = draw.text("ab.", max_size=6)
PATTERNS = draw.text("ab*", max_size=6)


@given(NAMES, PATTERNS, PATTERNS)
def test_patterns(name: str, pattern: str, other: str) -> None:
    """Patterns match as the shell's do, and one covers another only where it matches all that the other matches."""
    assert is_like(name, pattern) == fnmatchcase(name, pattern)
    if covers(NamedLike(pattern), NamedLike(other)):
        assert is_like(name, pattern) or not is_like(name, other)
    else:  # the shortest names, and one of a letter that no pattern has
        assert any(is_like(made, other) and not is_like(made, pattern) for made in (other.replace("*", "#"),))


def test_equal_schemes_are_proved_and_compiled_once() -> None:
    text = """
    scheme mine(gpus = 2) { tier node(gpus): dense_ring   tier cluster: dense_ring }
    strategy s { tensors "a": mine(2) on gpu   tensors "b": mine on gpu   tensors "c": mine on host   others: auto }
    """
    strategy = strategy_of(text)
    report = verify_strategy(strategy, Request(ranks=4))
    assert report.reports[0] is not report.of(strategy.rules[1])
    assert report.reports[0].proofs is report.reports[1].proofs is report.reports[2].proofs
    assert list(report.proved) == ["mine(gpus = 2)", "mine", *(each.name for each in strategy.rules[-1].candidates)]
    compiled = strategy_artifacts(report, "cpu", arch=[])
    assert compiled.artifacts[0] is compiled.artifacts[1] is not compiled.artifacts[2]
    assert [artifact.target for artifact in compiled.artifacts] == ["cuda", "cuda", "cpu", "cpu"]
    assert compiled.of(strategy.rules[3]).choosing is not None
