"""The formatter changes no meaning, and nothing of its own output."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clusters import topologies
from tests.support.damage import WORDS, damaged
from tests.support.fuzz import fuzzed
from tests.support.programs import programs
from tests.support.survival import Faults, faults_of
from zenc.common.resources import directory
from zenc.errors import SchemeSyntaxError, Source
from zenc.language.formatter import format_text
from zenc.language.parse import parse

TOKEN = re.compile(r'#[^\n]*|"[^"]*"|[0-9]+\.[0-9]+|\w+|\.\.|->|[=!<>]=|<<|>>|\S')
_COMMENTED = re.compile(r'(\n?)[ \t\r]*(#[^\n]*)|"[^"]*"')
BREAKS = ["\n", "\n\n", "\r\n", " # beside\n", "\n# above\n", "\n\n\n\t# apart \r\n\n", " #\n", ' # "}\n# {"\n']
GAPS = st.lists(st.sampled_from([" ", " ", " ", "\t", "    ", *BREAKS]), min_size=1, max_size=40)
"""Texts between one token and the next, repeated."""


def meaning(text: str) -> tuple[object, ...]:
    file = parse(Source("text", text))
    return file.imports, file.schedules, file.schemes, file.topologies, file.compressors, file.strategies


def words(text: str) -> list[str]:
    """Return everything but white space, in order: comments too, and doc strings as they are understood."""
    return [f'"{" ".join(word[1:-1].split())}"' if word[0] == '"' else word.rstrip() for word in TOKEN.findall(text)]


def comments(text: str) -> list[tuple[bool, str]]:
    """Return whether each comment has a line of its own, and the comment."""
    return [(bool(line), comment.rstrip()) for line, comment in _COMMENTED.findall("\n" + text) if comment]


def _without_inside(found: re.Match[str]) -> str:
    """Return a string or a comment without its inner white space, which is always kept."""
    return '""' if found[0][0] == '"' else re.sub(r"\s(?=.*\S)", "_", found[0])


def layout_faults(text: str) -> Faults:
    """Return faults of the layout of ``text``, by properties of any layout."""
    once = format_text(text, "text")
    plain = re.sub(r'#[^\n]*|"[^"]*"', _without_inside, once)
    spaced = "\n\n\n" in plain or "{\n\n" in plain or "\r" in plain or "\t" in plain
    return faults_of(
        it_is_laid_out_in_another_way_again=format_text(once, "text") == once,
        it_means_something_else=meaning(once) == meaning(text),
        it_has_other_words=words(once) == words(text),
        it_has_other_comments=comments(once) == comments(text),
        it_is_spaced_in_another_way=not spaced,
        a_line_ends_in_blanks=not re.search(r"[ \t]\n|\n\n\Z|\A\s", plain) and once.endswith("\n"),
    )


def laid_out(text: str) -> str:
    """Return the layout of ``text``; raise AssertionError where it has faults."""
    assert layout_faults(text) == []
    return format_text(text, "text")


def layout_or_refusal_faults(text: str) -> Faults:
    """Return faults of the layout of a text that parses; another one has to be refused in the same words."""
    try:
        meaning(text)
    except SchemeSyntaxError as error:
        try:
            format_text(text, "text")
        except SchemeSyntaxError as refused:
            return faults_of(it_is_refused_by_other_words=str(refused) == str(error))
        return ["it is laid out and does not parse"]
    return layout_faults(text)


def apart(text: str, gaps: list[str]) -> str:
    """Return ``text`` with ``gaps`` between its tokens."""
    return "".join(word + gaps[place % len(gaps)] for place, word in enumerate(TOKEN.findall(text)))


SHIPPED = {path.stem: path.read_text(encoding="utf-8") for path in sorted(directory("schemes").rglob("*.zen"))}
TEXTS = [path for path in (Path(__file__).parents[2] / "diagnostics").glob("*.good.zen") if path.stat().st_size]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_schemes_are_laid_out(name: str) -> None:
    assert laid_out(SHIPPED[name]) == SHIPPED[name]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_small_texts(path: Path) -> None:
    assert layout_faults(path.read_text(encoding="utf-8")) == []


@fuzzed(80)
@given(st.sampled_from(sorted(SHIPPED)), st.data())
def test_shipped_schemes_pulled_apart(name: str, data: st.DataObject) -> None:
    """White space and comments between any two tokens, few or many, let lines stay or break."""
    share = data.draw(st.sampled_from([1, 4, 20, 100]))
    randoms = data.draw(st.randoms(use_true_random=False))
    text = ""
    for word in TOKEN.findall(SHIPPED[name]):
        if word[0] == "#":
            text += randoms.choice([f"{word}\n", f"\n{word}\n", f"\n\n{word}\n\n"])
        else:
            text += word + (randoms.choice(BREAKS) if randoms.random() * share < 1 else randoms.choice(" \t"))
    assert layout_faults(text) == []


@fuzzed(60)
@given(programs(), GAPS)
def test_generated_texts(text: str, gaps: list[str]) -> None:
    assert layout_faults(text) == []
    assert layout_faults(apart(text, gaps)) == []


@fuzzed(60)
@given(topologies(), GAPS)
def test_generated_topologies(text: str, gaps: list[str]) -> None:
    assert layout_faults(text) == []
    assert layout_faults(apart(text, gaps)) == []


@fuzzed(100)
@given(damaged(st.sampled_from(sorted(SHIPPED.values())) | programs(), [*WORDS, " # beside\n", "\n# above\n"]))
def test_damaged_texts_are_laid_out_or_refused(text: str) -> None:
    assert layout_or_refusal_faults(text) == []


def test_tiers() -> None:
    text = """scheme a(g=8){ tier   node( g*2 ) :dense_ring  # inside
 tier cluster:balanced(seed=3) balance:balanced by permutation(tier) unit: row tier  x
 (2): y }"""
    expected = """scheme a(g = 8) {
    tier node(g * 2): dense_ring  # inside
    tier cluster:     balanced(seed = 3)
    balance: balanced by permutation(tier)
    unit: row
    tier x(2): y
}
"""
    assert laid_out(text) == expected


def test_a_choice() -> None:
    text = """scheme a(every=8){ push:coo  choose  ( every,margin = 0.1 )from[ balanced ,zen( k=3 )
 ] unit  : choose choose from [a]  # beside
 communication: from pull:  coo}"""
    expected = """scheme a(every = 8) {
    push: coo
    choose(every, margin = 0.1) from [balanced, zen(k = 3)]
    unit: choose
    choose from [a]  # beside
    communication: from
    pull: coo
}
"""
    assert laid_out(text) == expected


def test_a_topology() -> None:
    text = """topology t(n=2){ "Doc." levels : node(n),gpu( 4 )
like nodes(2,gpus=4,bandwidth=2.5 GB / s)   like "a  b.xml","c" ,"d"(nodes=2)
for i in 0..n-1 { link gpu(i,0)-hub: (n+1) GB/s,1 us } # each
link a->b(0) : -n Gbit / s unlink a - b memory gpu(0,- 1): 80 GB
if n { switch a }
else { switch b(n / 2) require n>1 "one  is
few" } let m = n / 2 / n
}"""
    expected = """topology t(n = 2) {
    "Doc."
    levels: node(n), gpu(4)
    like nodes(2, gpus = 4, bandwidth = 2.5 GB/s)
    like "a  b.xml", "c", "d" (nodes = 2)
    for i in 0 .. n - 1 { link gpu(i, 0) - hub: (n + 1) GB/s, 1 us }  # each
    link a -> b(0): -n Gbit/s
    unlink a - b
    memory gpu(0, -1): 80 GB
    if n { switch a }
    else {
        switch b(n / 2)
        require n > 1 "one is few"
    }
    let m = n / 2 / n
}
"""
    assert format_text(text, "text") == expected
    assert format_text(expected, "text") == expected


def body(text: str) -> str:
    """Return the layout of statements without the scheme around them."""
    lines = laid_out(f"schedule s {{ push {{\n{text}\n}} pull {{ }} }}").split("\n")
    return "\n".join(line[8:] for line in lines[2:-4])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let  a=1", "let a = 1"),
        ("let a = - (b - -1)*0x1F", "let a = -(b - -1) * 0x1F"),
        ("let a = not(b)and min( 1,2 ) == parts(3)", "let a = not (b) and min(1, 2) == parts(3)"),
        ("step{send parts -1..(2)to(3)where 1}", "step { send parts -1 .. (2) to (3) where 1 }"),
        ("step{send parts(1)..2 of 3 to 4}", "step { send parts (1) .. 2 of 3 to 4 }"),
        ("for k in 1..2{let a=k let b=k}", "for k in 1 .. 2 {\n    let a = k\n    let b = k\n}"),
        ("step {\nsend all to 1 }", "step {\n    send all to 1\n}"),
        ("step { }", "step { }"),
        ("step {\n\n}", "step { }"),
        ("step { # only this\n}", "step {  # only this\n}"),
        ("step {\n# only this\n}", "step {\n    # only this\n}"),
        ("if a { let b = 1 } else if c { let b = 2 }", "if a { let b = 1 } else if c { let b = 2 }"),
        ("if a { let b = 1 }\nelse { let b = 2 }", "if a { let b = 1 }\nelse { let b = 2 }"),
        ("if a {\nlet b = 1 }\n\nelse { let b = 2 }", "if a {\n    let b = 1\n} else { let b = 2 }"),
        ("if a {\n}  # why\n# or\nelse {\nlet b = 2 }", "if a { }  # why\n# or\nelse {\n    let b = 2\n}"),
        ("let a = 1 # x\nlet bcd = 1 # y\n\nlet e = 1 # z", "let a = 1    # x\nlet bcd = 1  # y\n\nlet e = 1  # z"),
        ("let a = # one\n1 + 1\nlet b = 2", "let a =  # one\n    1 + 1\nlet b = 2"),
        ('require a==b "c"', 'require a == b "c"'),
        ('require a "some\n   words "', 'require a "some words "'),
        ('require a # why\n"some words"\nlet b=1', 'require a  # why\n    "some words"\nlet b = 1'),
        ("step # why\n{ send all to 1 }", "step  # why\n{\n    send all to 1\n}"),
    ],
)
def test_statements(text: str, expected: str) -> None:
    assert body(text) == expected


def test_long_lines_keep_the_breaks_of_their_author() -> None:
    long = "step { send all to " + " + ".join(["rank"] * 14) + "\n+ " + " + ".join(["size"] * 14) + " }"
    first, second, third, last = body(long).split("\n")
    assert (first, last) == ("step {", "}")
    assert second.startswith("    send all to rank + ") and third.startswith("        + size + ")


def test_a_file() -> None:
    text = """# a header

import  "a.zen"
import "b.zen" # beside
schedule ring_2(k,l=2) { push{} # empty
pull{ } }
# about it
scheme it {"Some
doc." push:auto aggregation : incremental
  communication:mine(k=2)  # how
balance: balanced by permutation( 0x5eed ) partition: parallelism

unit: row
# the end
}"""
    assert (
        laid_out(text)
        == """# a header

import "a.zen"
import "b.zen"  # beside

schedule ring_2(k, l = 2) {
    push { }  # empty
    pull { }
}

# about it
scheme it {
    "Some
     doc."
    push: auto
    aggregation:   incremental
    communication: mine(k = 2)  # how
    balance:       balanced by permutation(0x5eed)
    partition:     parallelism

    unit: row
    # the end
}
"""
    )


@pytest.mark.parametrize("text", ['import "a\t\n\n\nb.zen" # \t c\rd \t', 'import "a.zen" #\x0b\x85b\u2028c\x1c'])
def test_comments_and_paths_keep_what_is_in_them(text: str) -> None:
    inside = text.split("#")[1].rstrip()
    assert f"  #{inside}\n" in laid_out(text)
    assert text[:8] in laid_out(text)


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(SchemeSyntaxError) as refused:
        format_text("scheme a {\n    b c\n}\n", "mine.zen")
    assert str(refused.value).startswith("mine.zen:2:7: error[syntax]")
