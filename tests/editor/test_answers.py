"""Answers of the language server, without a session."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.fuzz import tried
from zenc.averaging.model import WORDS
from zenc.averaging.resolve import AVERAGING_KEYS, DIVISIONS
from zenc.cli import app
from zenc.common.resources import directory
from zenc.editor.server.answers import complete, explain, glossary
from zenc.editor.server.known import Document, findings, renamed
from zenc.editor.server.serve import offset_at, position_at
from zenc.errors import SchemeError
from zenc.language.lexer import tables
from zenc.language.schedule import BUILTIN_NAMES, FUNCTIONS
from zenc.scheme.compression import CODES, ESTIMATORS, FEEDBACKS, PROJECTIONS, SELECTIONS, TRANSFORMS, WARMUPS
from zenc.scheme.resolve import KEYS
from zenc.strategy.model import DEVICES
from zenc.strategy.resolve import GROUPS, STRATEGY_KEYS

SHIPPED = sorted(path for path in directory("schemes").rglob("*.zen"))


def document(text: str) -> Document:
    found = Document(Path("/nowhere/mine.zen"))
    found.read(text)
    return found


def split(marked: str) -> tuple[Document, int]:
    """Return the text without its ``|``, and the place of that."""
    return document(marked.replace("|", "", 1)), marked.index("|")


@pytest.mark.parametrize(
    ("marked", "there", "not_there"),
    [
        ("|", {"scheme", "schedule", "topology", "import"}, {"send"}),
        ("scheme a {\n  |", {"communication", "push", "tier"}, {"send", "scheme"}),
        ("scheme a {\n  balance: |", {"imbalanced", "balanced by permutation", "balanced by holders"}, {"coo"}),
        ("scheme a {\n  balance: balanced by |", {"permutation", "holders"}, {"imbalanced"}),
        ("scheme a {\n  push: |", {"coo", "bitmap", "auto"}, {"ring"}),
        ("scheme a {\n  tier node(8): |", {"balanced", "dense_ring"}, {"coo"}),
        ("scheme a {\n  choose from [|", {"balanced", "zen"}, {"communication"}),
        ("scheme a {\n  choose(|", {"every", "margin"}, {"balanced"}),
        ("scheme a { communication: schedule { |", {"push", "pull"}, {"send"}),
        ("schedule s { push { |", {"step", "let", "rank"}, {"to"}),
        ("schedule s { push { step { send |", {"all", "part", "parts"}, {"step"}),
        ("schedule s { push { step { send all |", {"to", "where", "rank"}, {"step"}),
        ("topology t { |", {"levels", "link", "like"}, {"send"}),
        ("schedule s { trees(2) { |", {"tree", "let", "require"}, {"send", "branch"}),
        ("schedule s { push trees(2) { tree parts|", {"parts", "part"}, {"branch"}),
        ("schedule s { trees(2) { tree part 0 { |", {"branch"}, {"send", "tree"}),
        ("schedule s { trees(2) { tree part 0 { branch rank -> |", {"rank", "min", "size"}, {"branch", "send"}),
        ("topology t { like |", {"dgx", "nodes"}, {"levels"}),
        ("topology t { levels: gpu(2) link gpu(0) - gpu(1): 3 |", {"GB/s", "us"}, {"levels"}),
        ('scheme a { "push: |', set(), {"coo"}),
        ("compress a { |", {"select", "code", "feedback"}, {"push", "tier"}),
        ("scheme a(d = 0.1) { select: |", {"top", "sketch", "all"}, {"sign", "residual"}),
        ("scheme a { select: top(0.01) by |", {"sampled", "reused"}, {"permutation", "top"}),
        ("scheme a { select: probable(0.05) then sketch(|", {"rows", "share", "seed"}, {"top"}),
        ("scheme a { project: |", {"lowrank", "none"}, {"sketch"}),
        ("scheme a { transform: |", {"dct", "hadamard", "none"}, {"top"}),
        ("compress a { transform: dct(|", {"chunk"}, {"block"}),
        ("scheme a { push: dense as |", {"sign", "fixed"}, {"coo", "top"}),
        ("scheme a { push: dense as fixed(8) by |", {"asc"}, {"permutation"}),
        ("compress mine { feedback: residual } scheme a { compress: |", {"dgc", "onebit"}, {"coo"}),
        ("strategy a { |", {"groups", "tensors", "others"}, {"communication", "send"}),
        ("strategy a { groups: |", {"fused", "cuts", "search"}, {"dense_ring"}),
        ("strategy a { groups: fused(4 |", {"MB", "KiB"}, {"GB/s"}),
        ('strategy a { tensors "wte.*": |', {"dense_ring", "choose from"}, {"fused"}),
        ("strategy a { others: dense_ring on |", {"gpu", "host"}, {"dense_ring"}),
        ("strategy a { others: choose from [one_bit, |", {"dense_ring"}, {"groups"}),
        ("averaging a { |", {"alternate", "sums"}, {"rows", "communication"}),
        ("averaging a { alternate [rows(2), |", {"columns", "inside", "groups"}, {"sums", "dense_ring"}),
        ("averaging a { sums: |", {"dense_ring"}, {"rows"}),
        ("averaging a { outer: |", {"nesterov", "sgd"}, {"every", "dense_ring"}),
        ("averaging a { outer: nesterov(|", {"lr", "momentum"}, {"sums"}),
    ],
)
def test_completions_fit_the_place(marked: str, there: set[str], not_there: set[str]) -> None:
    found = {item.label for item in complete(*split(marked))}
    assert there <= found and not not_there & found


def test_every_word_of_the_language_is_explained() -> None:
    words = {*tables().words, *KEYS, *BUILTIN_NAMES, *FUNCTIONS, "coo", "holders", "one_shot", "row", "centralization"}
    words |= {
        *SELECTIONS, *PROJECTIONS, *TRANSFORMS, *ESTIMATORS, *CODES, *FEEDBACKS, *WARMUPS, "code", "compress",
        "strategy",
    }  # fmt: skip
    words |= {
        *GROUPS, *STRATEGY_KEYS, *DEVICES, *AVERAGING_KEYS, *DIVISIONS,
        *(word for words in WORDS.values() for word in words),
    }  # fmt: skip
    assert words - set(glossary()) == set()


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        ("topology t { like d|gx(4) }", "machines like NVIDIA's DGX H100"),
        ("scheme a(k = 1) { balance: balanced by perm|utation(k) }", "keyed permutation"),
        ("schedule s { push { for st|ep_ in 0 .. 1 { step { send all to step_ } } } pull { } }", "variable `step_`"),
        ("scheme a { tier node(2): bal|anced tier rack: balanced }", "near-optimal"),
        ("scheme a { push: bit|map", "one bit for each unit"),
        ("scheme a { select: top(0.1) by samp|led(0.01)", "a sample of this share"),
        ("scheme a { push: dense as si|gn(64)", "mean magnitude of the block"),
        ("compress mine(d = 0.1) { select: top(d) } scheme a { compress: mi|ne }", "compressor mine(d)"),
        ("strategy a { groups: fus|ed others: dense_ring }", "buffers that are full"),
        ("strategy a { others: dense_ring on ho|st }", "copied to the host"),
        ("strategy a { others: dense_r|ing }", "scheme dense_ring"),
        ("averaging a { alternate [col|umns(2)] sums: dense_ring }", "the same place in their row"),
        ("averaging a { alternate [everyone] sums: dense_r|ing }", "scheme dense_ring"),
    ],
)
def test_what_stands_there_is_explained(marked: str, words: str) -> None:
    assert words in (explain(*split(marked)) or "")


SCOPES = """schedule s(k) {
    push { for k_ in 0 .. k { step { send all to k_ } } for j in 0 .. 1 { step { send all to j } } }
    pull { for k_ in 0 .. k { step { send all to k_ } } }
}
scheme a { communication: s(k = 3) }
"""


def test_a_variable_is_renamed_in_its_own_loop() -> None:
    known = document(SCOPES)
    places = renamed(known, SCOPES.index("k_"), "i")
    assert [span.line for span in places] == [2, 2]
    lines = sorted(span.line for span in renamed(known, SCOPES.index("(k)") + 1, "n"))
    assert lines == [1, 2, 3, 5], "and a parameter where it is given by name"


@pytest.mark.parametrize(
    ("words", "name", "why"),
    [
        ("j in", "k", "has a meaning here already"),
        ("k_ in", "rank", "is a name of the language"),
        ("s(k)", "ring", "another schedule 'ring'"),
        ("(k)", "k_", "has a meaning here already"),
        ("j in", "2x", "can't be a name"),
    ],
)
def test_a_rename_that_would_change_a_meaning_is_refused(words: str, name: str, why: str) -> None:
    with pytest.raises(SchemeError, match=why):
        renamed(document(SCOPES), SCOPES.index(words) + (words[0] == "("), name)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_have_no_findings_but_warnings(path: Path) -> None:
    found = findings(path.read_text("utf-8"), path, prove=False)
    assert [each.render() for each in found if each.severity == "error"] == []


COMPRESSING = """compress mine(d = 0.1, e = 2) { select: tpo(d) feedback: residual }
scheme a { compress: mine(d = 0.2) }
"""


def test_a_compressor_is_looked_at_and_renamed() -> None:
    found = findings(COMPRESSING, Path("t.zen"), prove=False)
    assert "did you mean 'top'?" in next(each.message for each in found if each.id == "unknown-value")
    alone = findings(COMPRESSING.splitlines()[0].replace("tpo", "top"), Path("t.zen"), prove=False)
    assert [(each.id, each.severity) for each in alone] == [("unused-name", "warning")]
    known = document(COMPRESSING.replace("tpo", "top"))
    assert [span.line for span in renamed(known, COMPRESSING.index("d ="), "share")] == [1, 1, 2]


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=60), st.integers(0, 60))
def test_places_there_and_back(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    place = position_at(text, offset)
    assert offset_at(text, place) == offset
    assert place.character == len(text[:offset].rpartition("\n")[2].encode("utf-16-le")) // 2


@settings(deadline=None, max_examples=tried(40))
@given(st.data())
def test_no_text_is_too_broken(data: st.DataObject) -> None:
    """A shipped file with a piece cut out can be checked, completed and explained anywhere."""
    text = (directory("schemes") / "torus2d.zen").read_text("utf-8")
    start, end, at = (data.draw(st.integers(0, len(text))) for _ in range(3))
    cut = text[:start] + text[start + end % 40 :]
    known = document(cut)
    assert all(each.message for each in findings(cut, known.path, prove=False))
    assert all(item.label for item in complete(known, min(at, len(cut))))
    assert explain(known, min(at, len(cut))) != ""


def test_without_pygls_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["zenc.cli.assist.lsp"], "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["lsp", "--json"])
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert (done.exit_code, found["id"], found["help"]) == (1, "editor-support-missing", "pip install 'zenc[lsp]'")


def test_the_extension_is_found() -> None:
    done = CliRunner().invoke(app, ["lsp", "--extension"])
    assert done.exit_code == 0 and (Path(done.stdout.strip()) / "package.json").is_file()
