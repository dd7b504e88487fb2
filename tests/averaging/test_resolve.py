"""Averagings: the groups that divisions make, and errors in a text."""

import pytest

import zenc
from tests.support.refusals import refusals
from zenc.averaging.model import division_text
from zenc.averaging.resolve import AVERAGING, resolve_averaging
from zenc.errors import SchemeError, SchemeSyntaxError
from zenc.language.files import load_text
from zenc.language.formatter import format_text
from zenc.scheme.collector import pick

TEXT = """
scheme own { communication: ring aggregation: incremental partition: parallelism balance: imbalanced }
averaging mine(side = 2) { "Doc." alternate [%s] sums: own }
"""


@pytest.mark.parametrize(
    ("written", "means", "groups"),
    [
        ("rows(side)", "rows(2)", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("columns(members = side)", "columns(2)", [(0, 2, 4, 6), (1, 3, 5, 7)]),
        ("strided(2, 4)", "strided(2, 4)", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("strided(stride = 2, members = 2)", "strided(2, 2)", [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("everyone", "everyone", [tuple(range(8))]),
        ("inside rack", "rows(4)", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("across rack", "columns(4)", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("across node(2) inside rack", "strided(2, 2)", [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("groups [7, side] [0, 1] [3, 4, 5, 6]", "groups [7, 2] [0, 1] [3, 4, 5, 6]", [(0, 1), (2, 7), (3, 4, 5, 6)]),
    ],
)
def test_divisions(written: str, means: str, groups: list[tuple[int, ...]]) -> None:
    found, _ = resolve_averaging(load_text(TEXT % written), levels={"rack": 4})
    (division,) = found.divisions
    assert division_text(division) == means
    assert division.groups(8) == tuple(groups)
    assert (found.doc, found.parameters, found.sums.name) == ("Doc.", (("side", 2),), "own")
    assert (found.period, found.listed_size) == (1, 8 if "groups" in written else None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("alternate [rows(2)]", "missing-key: averaging 'mine' does not say how a group sums"),
        ("sums: dense_ring", "missing-key: averaging 'mine' does not say which groups"),
        ("sums: dense_ring alternate [rows(1)] alternate [rows(2)]", "duplicate-key: an averaging alternates once"),
        ("sums: dense_ring push: coo alternate [everyone]", "unknown-key: unknown key 'push'; one of sums"),
        ("sums: dens_ring alternate [everyone]", "unknown-value: unknown scheme 'dens_ring'"),
        ("sums: auto alternate [everyone]", "nested-choice: 'auto' chooses among schemes itself"),
        (
            "sums: dense_ring alternate [everyone] outer: adam",
            "unknown-value: unknown value of 'outer' 'adam'; one of sgd",
        ),
        ("sums: dense_ring alternate [rows(2), columns(2)] ranks: shuffled(33)", "wrong-range: a period has 64"),
        ("sums: dense_ring alternate [everyone] when: every", "wrong-arguments: 'every' needs a value for 'steps'"),
        ("sums: dense_ring alternate [everyone] when: every(0)", "wrong-range: 'steps' of 'every' is 1 or more"),
        (
            "sums: dense_ring alternate [everyone] when: every(9) fragments: runs(2)",
            "wrong-range: 9 steps are not 2 runs of equally many",
        ),
        (
            "sums: dense_ring alternate [everyone] when: every(9) overlap: during(9)",
            "wrong-range: a sum begins each 9 steps, so it takes fewer than these, not 9",
        ),
        ("sums: zen alternate [rows(2)] outer: sgd(1)", "outer-groups: an outer optimizer steps from one point"),
        ("sums: zen alternate [everyone] outer: schedule { }", "wrong-value: the value of 'outer' is no schedule"),
        ("sums: oscar_sw alternate [everyone]", "lossy-average: scheme 'oscar_sw' does not make the mean of a group"),
        ("sums: dense_ring alternate [rwos(2)]", "unknown-value: unknown division 'rwos'; one of rows, columns"),
        ("sums: dense_ring alternate [rows]", "wrong-arguments: 'rows' needs members"),
        ("sums: dense_ring alternate [strided(2)]", "wrong-arguments: 'strided' needs stride"),
        ("sums: dense_ring alternate [everyone(2)]", "wrong-arguments: 'everyone' takes no arguments"),
        ("sums: dense_ring alternate [rows(0)]", "wrong-range: it takes 1 to 65,536 ranks, not 0"),
        ("sums: dense_ring alternate [rows(2.5)]", "wrong-type: an integer is needed here, not 2.5"),
        ("sums: dense_ring alternate [rows(what)]", "unknown-name: 'what' is no parameter"),
        ("sums: dense_ring alternate [inside node]", "tier-size: level 'node' has no size"),
        ("sums: dense_ring alternate [across a(4) inside b(6)]", "tier-size: 6 ranks inside are not whole units of 4"),
        ("sums: dense_ring alternate [groups [0, 70000]]", "wrong-range: a rank is 0 to 65,535, not 70000"),
        ("sums: dense_ring alternate [groups [0, 0] [1]]", "overlapping-groups: rank 0 is twice in one group"),
        ("sums: dense_ring alternate [groups [0], groups [0, 1]]", "missing-rank: 'groups [0]' is without rank 1"),
        (f"sums: dense_ring alternate [{', '.join(['everyone'] * 65)}]", "wrong-range: a period has at most 64 steps"),
    ],
)
def test_errors(body: str, said: str) -> None:
    with pytest.raises(SchemeError) as caught:
        resolve_averaging(load_text(f"averaging mine {{ {body} }}", "m.zen"))
    assert [f"{each.id}: {each.message}"[: len(said)] for each in caught.value.diagnostics] == [said]
    assert caught.value.diagnostics[0].span is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("averaging a { alternate rows(2) }", "expected '[' after 'alternate', found 'rows'"),
        ("averaging a { alternate [] }", "expected a division of ranks such as 'rows(4)' after '[', found ']'"),
        ("averaging a { alternate [groups] }", "expected '[' after 'groups', found ']'"),
        ("averaging a { [", "expected 'alternate', a key such as 'sums', 'require' or '}' after '{', found '['"),
    ],
)
def test_syntax_errors(text: str, said: str) -> None:
    assert refusals(SchemeSyntaxError, load_text, text)[0].message == said


def test_several_and_none() -> None:
    two = load_text(
        "averaging a { alternate [everyone] sums: balanced } averaging b { alternate [everyone] sums: zen }"
    )
    assert pick(AVERAGING, two, "b") is two.main.averagings[1]
    assert resolve_averaging(two, "b")[0].sums.name == "zen"
    for name, id in ((None, "several-schemes"), ("c", "no-averaging")):
        with pytest.raises(SchemeError, match=rf"error\[{id}\]"):
            resolve_averaging(two, name)
    assert pick(AVERAGING, load_text("scheme a { }")) is None


def test_layout() -> None:
    written = """averaging a ( side=2 ) { "x" # beside
    # above
      sums:dense_ring   alternate[rows(side),groups [0,1]
  [2 , side+1],across node inside rack(16)] }"""
    formatted = format_text(written, "a.zen")
    assert formatted == (
        'averaging a(side = 2) {\n    "x"  # beside\n    # above\n    sums: dense_ring\n'
        "    alternate [rows(side), groups [0, 1] [2, side + 1], across node inside rack(16)]\n}\n"
    )
    assert format_text(formatted, "a.zen") == formatted


KINDS = {
    "scheme": "scheme mine { tier node(2): dense_ring   tier cluster: dense_ring }",
    "strategy": "strategy mine { others: dense_ring }",
    "averaging": "averaging mine { alternate [everyone]  sums: dense_ring }",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_has_the_verbs_of_its_kind(kind: str) -> None:
    """``zenc.open`` takes texts of each kind."""
    found = zenc.open(KINDS[kind], ranks=4)
    assert found.kind == kind and found.check().name == "mine"
    assert found.explain().to_json() and found.draw().svg().startswith("<svg")
    lacking = {"strategy": found.load, "averaging": found.compile}.get(kind)
    if lacking is None:
        assert zenc.open("balanced").kind == "scheme" and isinstance(found.compile("plan"), zenc.Artifact)
    else:
        with pytest.raises(zenc.SchemeError, match="wrong-kind"):
            lacking()
        with pytest.raises(zenc.SchemeError, match=f"is about its {kind}, which has no 'link'"):
            zenc.open(KINDS[kind], link="1 Gbit/s")
