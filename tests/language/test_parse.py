"""Texts that parse, and messages about those that do not."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.refusals import refusals
from zenc.common.resources import directory
from zenc.errors import SchemeSyntaxError, Source
from zenc.language.parse import parse, parse_block, parse_expression
from zenc.language.recovery import RESERVED
from zenc.language.schedule import Binary, If, Integer, Let, Send, Unary, Variable
from zenc.language.syntax import Schedule
from zenc.language.terms import Number, Phrase


def problems(text: str) -> list[tuple[str, str]]:
    """Return the place and the message of each syntax error."""
    with pytest.raises(SchemeSyntaxError) as caught:
        parse(Source("t.zen", text))
    for diagnostic in caught.value.diagnostics:
        assert "ANON" not in diagnostic.render()
        assert "Expected one of" not in diagnostic.render()
    return [(str(d.span).removeprefix("t.zen:"), d.message) for d in caught.value.diagnostics]


def schedule(push: str) -> str:
    return f"schedule s {{ push {{ {push} }} pull {{ }} }}"


A, B, C = Variable("a"), Variable("b"), Variable("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a or b and c", Binary("or", A, Binary("and", B, C))),
        ("not a == b", Unary("not", Binary("==", A, B))),
        ("a | b ^ c & 1", Binary("|", A, Binary("^", B, Binary("&", C, Integer(1))))),
        ("a & b << 1 + 2 * 3", Binary("&", A, Binary("<<", B, parse_expression("1 + 2 * 3")))),
        ("a - b - c", Binary("-", Binary("-", A, B), C)),
        ("-a * b", Binary("*", Unary("-", A), B)),
        ("a mod b / c", Binary("/", Binary("mod", A, B), C)),
        ("a <= b and b != c", Binary("and", Binary("<=", A, B), Binary("!=", B, C))),
        ("(a << b) < c", Binary("<", Binary("<<", A, B), C)),
        ("0x_5E_ed + 1_000", Binary("+", Integer(0x5EED), Integer(1000))),
        ("modulo + order + nothing", parse_expression("(modulo + order) + nothing")),
        ("parts + of_ + log2", parse_expression("(parts + of_) + log2")),
    ],
)
def test_precedence(text: str, tree: object) -> None:
    assert parse_expression(text) == tree


def test_words_of_the_language_are_keys_and_values() -> None:
    file = parse(Source("t", "scheme a { push: auto pull: step step: send mod: schedule_ }"))
    assert [entry.key.text for entry in file.schemes[0].entries] == ["push", "pull", "step", "mod"]


def test_a_push_may_follow_the_doc() -> None:
    text = 'scheme a { "A doc." push: auto communication: schedule { "A doc." push { } pull { } } }'
    (scheme,) = parse(Source("t", text)).schemes
    assert [entry.key.text for entry in scheme.entries] == ["push", "communication"]


def test_line_ends_mean_nothing() -> None:
    text = 'import "x.zen" scheme a(k = 2.5) { "d" communication: b(k = -1, 2e3) then c by d(k) }'
    assert parse(Source("t", text)) == parse(Source("t", text)), "spans take no part in comparisons"
    spread = parse(Source("t", text.replace(" ", " \n # note\r\n\t")))
    assert spread.schemes == parse(Source("t", text)).schemes
    value = spread.schemes[0].entries[0].value
    assert isinstance(value, Phrase)
    assert value.connectives == ("then", "by")
    assert spread.schemes[0].parameters[0].default == Number(2.5)
    assert value.words[0].arguments[1].value == Number(2000.0)


def test_doc_strings_have_single_spaces() -> None:
    assert parse(Source("t", 'scheme a { "one\n     two" }')).schemes[0].doc == "one two"


def test_both_blocks_of_a_phase_leave_their_spans() -> None:
    value = parse(Source("t", "scheme a { x: schedule { push { } push { } } }")).schemes[0].entries[0].value
    assert isinstance(value, Schedule)
    assert [span.start for span in value.push_spans] == [25, 34]
    assert value.pull_spans == ()


def test_statements() -> None:
    block = parse_block(
        "let n = 1 if n { } else if 2 { } else { let m = n } step { send parts 0 .. 1 of 2 to 3 where 4 }"
    )
    assert isinstance(block[0], Let)
    assert isinstance(block[1], If)
    assert isinstance(block[1].otherwise[0], If)
    assert isinstance(block[2].body[0], Send)  # type: ignore[union-attr]
    assert parse_block("") == ()


def test_spans_are_those_of_the_text() -> None:
    text = "scheme a {\n  x: balanced by p(seed)\n}"
    entry = parse(Source("t", text)).schemes[0].entries[0]
    assert text[entry.value.span.start : entry.value.span.end] == "balanced by p(seed)"  # type: ignore[union-attr]
    expression = parse_expression("(a + b) * c")
    assert expression.span is not None
    assert (expression.span.start, expression.span.end) == (0, 11)


MALFORMED = [
    ("scheme a { aggregation incremental }", "1:24", "expected ':' after 'aggregation', found 'incremental'"),
    ("scheme a { x: }", "1:15", "expected a value after 'x:', found '}'"),
    ("scheme a { x: y: z }", "1:15", "expected a value after 'x:'"),
    ("scheme a { x: 3 }", "1:15", "expected a value after 'x:', found '3'"),
    ("scheme a { 3: x }", "1:12", "expected a key such as 'communication' or '}' after '{', found '3'"),
    ("scheme a { x: y by }", "1:20", "expected a word after 'by', found '}'"),
    ("scheme a { x: y, z: w }", "1:16", "expected a key such as 'communication' or '}' after 'y', found ','"),
    ("scheme a { x: y; z: w }", "1:16", "unexpected character ';'"),
    ("scheme a { x: y(1 2) }", "1:19", "expected ')' or ',' after '1', found '2'"),
    ('scheme a { "b" "c" }', "1:16", "expected a key such as 'communication' or '}' after a string, found a string"),
    ("scheme a(k 1) { }", "1:12", "expected ')', ',' or '=' after 'k', found '1'"),
    ("scheme a(k = ) { }", "1:14", "expected an expression after '=', found ')'"),
    ("scheme a(k = 12ab) { }", "1:14", "'12ab' is no number"),
    ("scheme a(k = 1.2.3) { }", "1:14", "'1.2.3' is no number"),
    ("scheme step { }", "1:8", "'step' is a word of the language, and can't be a name"),
    ("scheme", "1:6", "unexpected end of file: expected a name after 'scheme'"),
    ("scheme a", "1:8", "unexpected end of file: expected '(' or '{' after 'a'"),
    ("scheme a {\n  x: y\n", "1:10", "unexpected end of file: this '{' is never closed"),
    ("scheme a {\n  x: y\n\nscheme b { x: y }\n", "1:10", "this '{' is never closed"),
    ("schedule s {\n  push {\n    let n = 1\n  pull { }\n}\n", "4:3", "expected a statement"),
    ("scheme a {\n  x: schedule {\n    push {\n    step { }\n  }\n}\n", "3:10", "unexpected end of file: this '{'"),
    ("scheme a { x: y }}", "1:18", "this '}' closes nothing"),
    ('scheme a { x: "y }', "1:15", "this string is never closed"),
    ("import foo", "1:8", "expected a string in double quotes after 'import', found 'foo'"),
    ("foo", "1:1", "expected 'scheme', 'schedule', 'compress', 'strategy', 'averaging', 'topology' or 'import', found"),
    ("strategy s { groups fused }", "1:21", "expected ':' after 'groups', found 'fused'"),
    ("strategy s { others one_bit }", "1:21", "expected ':' after 'others', found 'one_bit'"),
    ("strategy s { tensors one_bit: a }", "1:22", "expected a string in double quotes or 'above' after 'tensors'"),
    ("strategy s { others: a, b }", "1:23", "expected a rule such as 'others: dense_ring', 'on' or '}' after 'a'"),
    ("scheme a { push: dense as }", "1:27", "expected a word after 'as', found '}'"),
    ("compress { }", "1:10", "expected a name after 'compress', found '{'"),
    ("scheme a {\ncompress: dgc\npush coo\n}", "3:6", "expected ':' after 'push', found 'coo'"),
    ("\N{SNOWMAN}", "1:1", "unexpected character '\N{SNOWMAN}'"),
    ("scheme a { \x07 }", "1:12", "unexpected character '<U+0007>'"),
    ("schedule s { foo { } }", "1:14", "expected 'push', 'pull' or '}' after '{', found 'foo'"),
    ("schedule s { push let n = 1 }", "1:19", "expected '{' after 'push', found 'let'"),
    (schedule("if a = b { }"), "1:26", "unexpected '=' in an expression"),
    (schedule("if a < b < c { }"), "1:30", "comparisons do not chain"),
    (schedule("let n = 2.5"), "1:29", "'2.5' is no integer"),
    (schedule("let n = a % b"), "1:31", "unexpected character '%'"),
    (schedule("let n = a && b"), "1:31", "unexpected '&&'"),
    (schedule("let n = a || b"), "1:31", "unexpected '||'"),
    (schedule("let n = a // b"), "1:31", "unexpected '//'"),
    (schedule("let n = 2 ** b"), "1:31", "unexpected '**'"),
    (schedule("let n = !a"), "1:29", "unexpected character '!'"),
    (schedule("let for = 1"), "1:25", "'for' is a word of the language, and can't be a name"),
    (schedule("let n = to"), "1:29", "expected an expression after '=', found 'to'"),
    (schedule("else { }"), "1:21", "'else' without an 'if' before it"),
    (schedule("for s in 0 ... 3 { }"), "1:34", "unexpected character '.'"),
    (schedule("for s in 0 { }"), "1:32", "expected '..' after '0', found '{'"),
    (schedule("for s 0 .. 1 { }"), "1:27", "expected 'in' after 's', found '0'"),
    (schedule("step { send all to (1 }"), "1:40", "this '(' is never closed"),
    (schedule("step { send all to 1) }"), "1:41", "this ')' closes nothing"),
    (schedule("step { send all totals }"), "1:37", "expected 'of' or 'to' after 'all', found 'totals'"),
    (schedule("step { send total to 1 }"), "1:33", "expected 'part', 'parts' or 'all' after 'send', found 'total'"),
    (schedule("step { send parts 1 to 2 }"), "1:41", "expected '..' after '1', found 'to'"),
    (schedule("step { send all }"), "1:37", "expected 'of' or 'to' after 'all', found '}'"),
]


MEANT = [
    ("Scheme a { }", "did you mean 'scheme'?"),
    ("schedules s { }", "did you mean 'schedule'?"),
    ("schedule s { Push { } }", "did you mean 'push'?"),
    ("// a note\nscheme a { }", "A comment starts with '#'"),
    ("/* a note */ scheme a { }", "a comment starts with '#'"),
    (schedule("let n = size // 2"), "did you mean '/'?"),
    (schedule("let n = size modulo 2"), "did you mean 'mod'?"),
    (schedule("let n = rank xor 1"), "did you mean '^'?"),
    (schedule("for i in range(size) { }"), "did you mean '0 .. size - 1'?"),
    (schedule("for i in range(1, 8) { }"), "did you mean '1 .. 7'?"),
    (schedule(f"for i in range({'9' * 5000}) {{ }}"), "9 - 1'? Both ends"),
    (schedule("step { recv all from 1 }"), "did you mean 'send PARTS to RANK'?"),
    (schedule("step { sned all to 1 }"), "did you mean 'send'?"),
    (schedule("step { send all too 1 }"), "did you mean 'to'?"),
]


@pytest.mark.parametrize(("text", "meant"), MEANT, ids=[m[0][-24:] for m in MEANT])
def test_words_of_other_languages_are_told_what_they_are_here(text: str, meant: str) -> None:
    (found,) = refusals(SchemeSyntaxError, parse, Source("t.zen", text))
    assert meant in found.render()


@pytest.mark.parametrize(("text", "place", "message"), MALFORMED, ids=[m[0][:40] for m in MALFORMED])
def test_malformed_text_is_explained(text: str, place: str, message: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert found[0][0] == place
    assert found[0][1].startswith(message)


def test_all_syntax_errors_are_told_at_once() -> None:
    text = """
scheme a {
    communication ring
    aggregation: incremental
    partition = parallelism
    balance: balanced by
}
schedule s {
    push {
        step { send al to 1 }
        for s in 0 .. { step { send all to 1 } }
        if a = b { send all to 1 } else { send all to 2 }
        let n = 1
    }
    pull { foo }
}
scheme b { x: "y }
"""
    assert [place for place, _ in problems(text)] == [
        "3:19", "5:15", "7:1", "10:21", "11:23", "12:14", "15:12", "17:15",
    ]  # fmt: skip


def test_an_unclosed_brace_brings_no_cascade() -> None:
    text = (
        "scheme a {\n  x: schedule {\n    push { step { send all to 1 }\n    pull { }\n  }\n  y: z\n}\nscheme b { x y }"
    )
    assert [place for place, _ in problems(text)] == ["4:5", "8:14"]


def test_an_error_in_a_long_file_is_reported_at_once() -> None:
    statement = "        step { send all to rank + 1 where rank == 0 }\n"
    text = "schedule s {\n    push {\n" + statement * 2000 + "        step { send all to }\n    }\n    pull { }\n}\n"
    whole = Source("t.zen", text.replace("to }", "to 1 }"))
    assert problems(text)[0][0] == "2003:28"
    assert least_seconds(lambda: problems(text)) < 3 * least_seconds(lambda: parse(whole)), "0.3 s on an idle machine"


def least_seconds(run: Callable[[], object]) -> float:
    """Return the least processor time of three runs."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000, "(" * 5_000 + "1" + ")" * 5_000, "(" * 150 + "1" + ")" * 150 + "+" + "-" * 150 + "1",
        "-" * 100_000 + "1", "not " * 100_000 + "1", "1" + "+1" * 10_000, "log2(" * 3_000,
    ],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(SchemeSyntaxError, match=r"error\[nesting\]"):
        parse_expression(text)


def test_deep_blocks_are_refused() -> None:
    for head in ("if 1 { ", "for s in 0 .. 1 { "):
        with pytest.raises(SchemeSyntaxError, match="nests too deep"):
            parse_block(head * 500 + "}" * 500)
    with pytest.raises(SchemeSyntaxError, match="nests too deep"):
        parse_block("if 1 { } " + "else if 1 { } " * 500)


@pytest.mark.parametrize(
    "digits", ["9" * 10**6, "0x" + "f" * 10**6, "18446744073709551616", "9" * 10**6 + ".5", "1e999"]
)
def test_great_numbers_are_refused(digits: str) -> None:
    with pytest.raises(SchemeSyntaxError, match=r"error\[number-range\]"):
        parse(Source("t", f"scheme a(k = {digits}) {{ }}"))


def test_the_greatest_integer() -> None:
    assert parse_expression("18446744073709551615") == Integer(2**64 - 1)


@pytest.mark.parametrize(
    ("text", "id"), [("", "empty-file"), (" \n", "empty-file"), ("# x", "empty-file"), ("a\0", "not-text")]
)
def test_what_is_no_scheme_at_all(text: str, id: str) -> None:
    assert [d.id for d in refusals(SchemeSyntaxError, parse, Source("t", text))] == [id]


def test_reserved_words_are_those_of_the_grammar() -> None:
    grammar = (directory("grammar") / "zen.lark").read_text(encoding="utf-8")
    listed = re.search(r"NAME\.1: /\(\?!\(\?:([a-z|]+)\)", grammar)
    assert listed
    assert set(listed[1].split("|")) == RESERVED
    manual = (Path(__file__).parents[2] / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    assert " ".join(sorted(RESERVED)) in " ".join(manual.split())


CHOICE = "a choice is a statement: if CONDITION { ... } else { ... }, or send ... where CONDITION"


@pytest.mark.parametrize(
    ("text", "help"),
    [
        (schedule("half = size / 2"), "write 'let half = ...'"),
        (schedule("let a = rank < 3 ? 0 : 3"), CHOICE),
        (schedule("let a = if rank { }"), CHOICE),
        (schedule("step { send part 0 .. 2 to 1 }"), "write 'parts A .. B' for several parts"),
        (
            "schedule s { let a = 1 push { } pull { } }",
            "statements stand in push { ... } and in pull { ... }; neither sees those of the other",
        ),
        (schedule("step == 1"), None),
    ],
)
def test_what_its_author_may_have_meant(text: str, help: str | None) -> None:
    assert refusals(SchemeSyntaxError, parse, Source("t.zen", text))[0].help == help


def test_more_words_than_are_read() -> None:
    ((place, message),) = problems(schedule("let a = 1 " * 30_000))
    assert message == "this text has too many words to be read" and place.startswith("1:")
