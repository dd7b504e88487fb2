"""Meanings of schemes, and errors of those without one."""

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from tests.support.refusals import refusals
from zenc.common.resources import directory
from zenc.errors import Diagnostic, SchemeError
from zenc.language.files import load_file, load_text
from zenc.language.parse import parse_block
from zenc.language.schedule import Integer, Let, Unary
from zenc.scheme.model import Aggregation, Contiguous, Format, HierarchicalHash, Partition, Permutation, Scheme, Unit
from zenc.scheme.resolve import resolve

REST = "aggregation: incremental partition: parallelism balance: imbalanced"
MINE = (
    "schedule mine(k, j = 2) { push { step { send all to rank ^ k ^ j } } pull { let n = k step { send all to n } } }"
)


def scheme_of(text: str, given: Mapping[str, int | float | str] | None = None, name: str | None = None) -> Scheme:
    return resolve(load_text(text, "t.zen"), name, given)[0]


def problems(
    text: str, given: Mapping[str, int | float | str] | None = None, name: str | None = None
) -> tuple[Diagnostic, ...]:
    return refusals(SchemeError, resolve, load_text(text, "t.zen"), name, given)


def ids(text: str, given: Mapping[str, int | float | str] | None = None) -> list[str]:
    return [diagnostic.id for diagnostic in problems(text, given)]


def test_balanced() -> None:
    scheme, warnings = resolve(load_file(directory("schemes") / "balanced.zen"))
    assert warnings == ()
    assert scheme.name == "balanced"
    assert scheme.parameters == (("seed", 0x5EED),)
    tier = scheme.tiers[-1]
    assert tier.communication.name == "point_to_point"
    assert (tier.aggregation, tier.partition) == (Aggregation.INCREMENTAL, Partition.PARALLELISM)
    assert (scheme.mapping, tier.push, tier.pull) == (Permutation(0x5EED), Format.AUTO, Format.BITMAP)
    assert scheme.unit is Unit.AUTO
    assert [Path(source.name).name for source in scheme.sources] == ["balanced.zen", "patterns.zen"]
    assert tier.communication.push_span is not None
    assert Path(tier.communication.push_span.source.name).name == "patterns.zen"


@pytest.mark.parametrize(
    ("communication", "aggregation", "rest"),
    list(
        product(
            ("ring", "hierarchy", "point_to_point"),
            ("incremental", "one_shot"),
            ("centralization", "parallelism balance: imbalanced", "parallelism balance: balanced by permutation"),
        )
    ),
)
def test_all_combinations_of_the_four_dimensions(communication: str, aggregation: str, rest: str) -> None:
    text = f"scheme a {{ communication: {communication} aggregation: {aggregation} partition: {rest} }}"
    scheme, warnings = resolve(load_text(text))
    assert warnings == ()
    assert scheme.mapping == (Permutation(0x5EED) if "balanced by" in rest else Contiguous())


@pytest.mark.parametrize(
    ("arguments", "mapping"),
    [
        ("", HierarchicalHash(3, 2.0, 0.2, 0x5EED)),
        ("(4)", HierarchicalHash(4, 2.0, 0.2, 0x5EED)),
        ("(k = 1, seed = 9)", HierarchicalHash(1, 2.0, 0.2, 9)),
        ("(2, 1, 0.5, 7)", HierarchicalHash(2, 1.0, 0.5, 7)),
        ("(r2 = 0, r1 = a)", HierarchicalHash(3, 1.5, 0.0, 0x5EED)),
    ],
)
def test_hierarchical_hash(arguments: str, mapping: HierarchicalHash) -> None:
    rest = REST.replace("imbalanced", f"balanced by hierarchical_hash{arguments}")
    found = scheme_of(f"scheme mine(a = 1.5) {{ communication: ring {rest} }}").mapping
    assert found == mapping and isinstance(found, HierarchicalHash)
    assert isinstance(found.r1, float) and isinstance(found.r2, float)


def test_all_that_is_wrong_with_a_hash_is_told_at_once() -> None:
    rest = REST.replace("imbalanced", "balanced by hierarchical_hash(0, -1, 99, 1 << 64)")
    assert ids(f"scheme a {{ communication: ring {rest} }}") == ["wrong-range"] * 4


def test_two_schedules_give_a_push_and_a_pull() -> None:
    both = scheme_of(f"scheme a {{ communication: point_to_point then ring {REST} }}").tiers[-1].communication
    assert both.name == "point_to_point then ring"
    assert both.push == scheme_of(f"scheme a {{ communication: point_to_point {REST} }}").tiers[-1].communication.push
    assert both.pull == scheme_of(f"scheme a {{ communication: ring {REST} }}").tiers[-1].communication.pull


def test_constants_go_in_as_literals_and_other_arguments_as_a_let() -> None:
    scheme = scheme_of(f"{MINE} scheme a(b = 3) {{ communication: mine(-b + 1, j = log2(size) + b) {REST} }}")
    communication = scheme.tiers[-1].communication
    assert communication.name == "mine(-b + 1, j = log2(size) + b)"
    assert scheme.tiers[-1].communication.push == parse_block(
        "let j = log2(size) + 3 step { send all to rank ^ -2 ^ j }"
    )
    assert scheme.tiers[-1].communication.pull == (
        Let("n", Unary("-", Integer(2))),
        *parse_block("step { send all to n }"),
    )


def test_parameters_of_the_scheme_go_into_its_own_schedule() -> None:
    text = "scheme a(k = 3) { communication: schedule { push { step { send all to rank + k } } pull { } } " + REST + "}"
    assert scheme_of(text, {"k": "0x10"}).tiers[-1].communication.push == parse_block("step { send all to rank + 16 }")
    assert scheme_of(text).tiers[-1].communication.name == "schedule"


def test_values_given_from_outside() -> None:
    rest = REST.replace("imbalanced", "balanced by permutation(seed = s * 2)")
    text = f"scheme a(s = 1, f = 2.5) {{ communication: ring {rest} }}"
    for value in (7, "7", "0x7", " 7 ", "+7", "0_7"):
        scheme = scheme_of(text, {"s": value})
        assert scheme.mapping == Permutation(14)
    assert scheme_of(text, {"f": "3"}).parameters == (("s", 1), ("f", 3.0))
    assert isinstance(scheme_of(text, {"f": 3}).parameters[1][1], float)


@pytest.mark.parametrize(
    ("value", "id"),
    [
        ("abc", "wrong-type"), ("", "wrong-type"), ("2.5", "wrong-type"), (2.0, "wrong-type"), (True, "wrong-type"),
        ("nan", "wrong-type"), ("inf", "wrong-type"), ("9" * 10**6, "wrong-type"), (str(2**64), "wrong-range"),
        (-1, "wrong-range"),
    ],
)  # fmt: skip
def test_values_that_are_none(value: int | float | str, id: str) -> None:
    text = f"scheme a(s = 1) {{ communication: ring {REST.replace('imbalanced', 'balanced by permutation(s)')} }}"
    assert ids(text, {"s": value}) == [id]


def test_unknown_parameters_and_schemes() -> None:
    text = f"scheme a(seed = 1) {{ communication: ring {REST.replace('imbalanced', 'balanced by permutation(seed)')} }}"
    (diagnostic,) = problems(text, {"sed": 1})
    assert diagnostic.id == "unknown-parameter"
    assert diagnostic.message == "unknown parameter 'sed'; one of seed (did you mean 'seed'?)"
    (diagnostic,) = problems(text, name="b")
    assert diagnostic.id == "unknown-scheme"
    assert scheme_of(text + "scheme b { communication: ring " + REST + "}", name="b").name == "b"


def test_a_scheme_of_an_imported_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.zen").write_text('import "balanced.zen"')
    assert resolve(load_file(tmp_path / "a.zen"), "balanced")[0].name == "balanced"


def test_the_typo_of_the_manual() -> None:
    (diagnostic,) = problems(f"scheme a {{ communication: rong {REST} }}")
    choices = "point_to_point, ring, hierarchy, bruck, or schedule { ... }"
    assert diagnostic.message == f"unknown communication 'rong'; one of {choices} (did you mean 'ring'?)"
    assert str(diagnostic.span) == "t.zen:1:27"


def test_the_choices_are_the_schedules_of_the_program() -> None:
    (diagnostic,) = problems(f"{MINE} scheme a {{ communication: mein {REST} }}")
    assert "one of mine, point_to_point, ring, hierarchy, bruck, or" in diagnostic.message
    assert "did you mean 'mine'?" in diagnostic.message


def test_all_problems_come_at_once() -> None:
    text = """scheme a {
        communication: rong
        agregation: incremental
        partition: paralelism
        balance: balancd
        push: cooo
        unit: rows
        pull: bitmap by coo
        communication: ring
    }"""
    assert ids(text) == [
        "unknown-value", "unknown-key", "unknown-value", "unknown-value", "unknown-value", "unknown-value",
        "wrong-value", "duplicate-key",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("balance", "id"),
    [
        ("balanced", "wrong-value"),
        ("balanced by rong", "unknown-value"),
        ("balanced then permutation", "wrong-value"),
        ("imbalanced by permutation", "wrong-value"),
        ("balanced by permutation by permutation", "wrong-value"),
        ("balanced(1) by permutation", "wrong-arguments"),
        ("balanced by permutation(1, 8, 2)", "wrong-arguments"),
        ("balanced by permutation(1, 12)", "wrong-range"),
        ("balanced by permutation(block = 8.0)", "wrong-type"),
        ("balanced by permutation(1, seed = 2)", "wrong-arguments"),
        ("balanced by permutation(sed = 2)", "wrong-arguments"),
        ("balanced by permutation(2.0)", "wrong-type"),
        ("balanced by permutation(1 / 0)", "division-by-zero"),
        ("balanced by permutation(1 << 64)", "wrong-range"),
        ("balanced by permutation(1 << 1000000000)", "wrong-range"),
        ("balanced by permutation(rank)", "unknown-name"),
        ("balanced by permutation(log2(0))", "wrong-range"),
        ("balanced by permutation(log3(1))", "unknown-function"),
        ("balanced by hierarchical_hsh", "unknown-value"),
        ("balanced by hierarchical_hash(r3 = 1)", "wrong-arguments"),
        ("balanced by hierarchical_hash(3, 2.0, 0.2, 1, 1)", "wrong-arguments"),
        ("balanced by hierarchical_hash(k = 0)", "wrong-range"),
        ("balanced by hierarchical_hash(k = 17)", "wrong-range"),
        ("balanced by hierarchical_hash(k = 2.0)", "wrong-type"),
        ("balanced by hierarchical_hash(r1 = -1)", "wrong-range"),
        ("balanced by hierarchical_hash(r1 = 64.5)", "wrong-range"),
        ("balanced by hierarchical_hash(r2 = -0.1)", "wrong-range"),
        ("balanced by hierarchical_hash(seed = 1 << 64)", "wrong-range"),
        ("balanced by hierarchical_hash(seed = 0.5)", "wrong-type"),
        ("schedule { push { } pull { } }", "wrong-value"),
    ],
)
def test_balance(balance: str, id: str) -> None:
    assert ids(f"scheme a {{ communication: ring {REST.replace('imbalanced', balance)} }}") == [id]


@pytest.mark.parametrize(
    ("communication", "id"),
    [
        ("ring then ring then ring", "wrong-value"), ("ring by ring", "wrong-value"), ("ring(1)", "wrong-arguments"),
        ("mine", "wrong-arguments"), ("mine(1, 2, 3)", "wrong-arguments"), ("mine(2.5)", "wrong-type"),
        ("mine(nothing)", "unknown-name"), ("mine(rank + nothing)", "unknown-name"), ("mine(f)", "wrong-type"),
    ],
)  # fmt: skip
def test_communication(communication: str, id: str) -> None:
    text = f"{MINE} scheme a(f = 0.5) {{ communication: {communication} {REST} }}"
    assert [d.id for d in problems(text) if d.severity == "error"] == [id]


@pytest.mark.parametrize(
    ("push", "found"),
    [
        ("let _a = b let _b = 1", ["unknown-name"]),
        ("let a = 1 let a = a", ["shadowed-name"]),
        ("for i in 0 .. 1 { let i = 2 }", ["shadowed-name"]),
        ("let log2 = 1", ["shadowed-name"]),
        ("for i in 0 .. i { }", ["unknown-name"]),
        ("if 1 { let a = 1 } step { send all to a }", ["unknown-name", "unused-name"]),
        ("step { if 1 { step { } } }", ["nested-step"]),
        ("for i in 0 .. 1 { send part i of 1 to 2 where x }", ["send-outside-step", "unknown-name"]),
        ("let _a = min(1)", ["wrong-arguments"]),
        ("let _a = size / 0 + foo(bar)", ["division-by-zero", "unknown-function", "unknown-name"]),
    ],
)
def test_statements(push: str, found: list[str]) -> None:
    text = f"scheme a {{ communication: schedule {{ push {{ {push} }} pull {{ }} }} {REST} }}"
    assert sorted(ids(text)) == found


def test_one_name_may_be_declared_in_two_blocks() -> None:
    push = "for i in 0 .. 1 { let a = i step { send all to a } } for i in 0 .. 1 { let a = i step { send all to a } }"
    assert scheme_of(f"scheme a {{ communication: schedule {{ push {{ {push} }} pull {{ }} }} {REST} }}")


def test_schedules_of_the_main_file_are_checked_though_unused() -> None:
    text = f"schedule s {{ push {{ send all to 1 }} }} scheme a {{ communication: ring {REST} }}"
    assert ids(text) == ["missing-phase", "send-outside-step"]


def test_an_entry_with_a_schedule_where_a_word_is_meant() -> None:
    text = f"scheme a {{ communication: ring push: schedule {{ }} {REST} }}"
    assert ids(text) == ["wrong-value"]


def test_warnings_do_not_stop_anything() -> None:
    text = """schedule s(k = 1) { push { let n = 1 } pull { } }
        scheme a(m = 1) { communication: s aggregation: one_shot partition: centralization
                          balance: balanced by permutation }"""
    scheme, warnings = resolve(load_text(text))
    assert [(d.id, d.severity) for d in warnings] == [
        ("unused-name", "warning"), ("unused-name", "warning"), ("unused-name", "warning"), ("no-effect", "warning"),
    ]  # fmt: skip
    assert scheme.mapping == Contiguous()


@pytest.mark.parametrize(
    ("value", "format"),
    [
        ("block", Format.BLOCK_256),
        ("block(256)", Format.BLOCK_256),
        ("block(slots = 1 << k)", Format.BLOCK_8),
        ("block(65536)", Format.BLOCK_65536),
        ("elias_fano", Format.ELIAS_FANO),
    ],
)
def test_formats(value, format):
    scheme = scheme_of(f"scheme a(k = 3) {{ communication: ring {REST} push: {value} pull: block(min(k, 3) - 1) }}")
    assert (scheme.tiers[-1].push, scheme.tiers[-1].pull) == (format, Format.BLOCK_2)


@pytest.mark.parametrize(
    ("value", "found", "words"),
    [
        ("block(100)", "wrong-range", "write block(64) or block(128)"),
        ("block(1)", "wrong-range", "blocks of one slot are what 'bitmap' sends"),
        ("block(0)", "wrong-range", "write block(2)"),
        ("block(131072)", "wrong-range", "write block(65536)"),
        ("block(2.5)", "wrong-type", ""),
        ("block(256, 2)", "wrong-arguments", ""),
        ("block(size = 4)", "wrong-arguments", "takes no argument 'size'; one of slots"),
        ("coo(4)", "wrong-arguments", "'coo' takes no arguments"),
        ("blok(4)", "unknown-value", "did you mean 'block'?"),
        ("elias by fano", "wrong-value", "one word"),
    ],
)
def test_formats_that_there_are_not(value, found, words):
    (problem,) = problems(f"scheme a {{ communication: ring {REST} push: {value} }}")
    assert problem.id == found and words in f"{problem.message} {problem.help}"


def test_of_many_names_some_are_listed() -> None:
    lets = " ".join(f'let n{place} = {place} require n{place} == {place} ""' for place in range(50))
    push = f'{lets} let x = n1x require x == 1 ""'
    text = f"scheme a {{ communication: schedule {{ push {{ {push} }} pull {{ }} }} {REST} }}"
    (diagnostic,) = problems(text)
    assert diagnostic.message.startswith("unknown name 'n1x' (did you mean 'n1")
    assert re.search(r", n\d+ and \d+ more$", diagnostic.notes[0]) and len(diagnostic.notes[0]) < 300
