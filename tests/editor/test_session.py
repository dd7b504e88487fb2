"""A session with ``zenc lsp`` over its standard input and output, as an editor has it."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient
from pygments.lexers import load_lexer_from_file
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

import zenc
from zenc.common.resources import directory
from zenc.editor import tokens
from zenc.editor.highlight import TOKENS, ZenLexer
from zenc.editor.server.serve import offset_at, position_at
from zenc.editor.tokens import NAMED, OPERATOR_WORDS, PUNCTUATION, rules
from zenc.errors import Source
from zenc.language.lexer import END, Token, tables
from zenc.language.parse import _TreeReader

MINE = """# \N{SNOWMAN} \U0001f600
import "other.zen"
scheme mine(seed = 7) {
    communication: point_to_point then theirs(k = 2)
    aggregation: incremental
    partition: parallelism
    balance: balanced by permutation(seed)
}
"""
OTHER = """schedule theirs(k = 1) {
    push { }
    pull { step { for d in 1 .. size - 1 { send part rank to (rank + d) mod size where k > 0 } } }
}
"""
WRONG = """scheme wrong {
    communication: schedule { push { } pull { } } aggregation: incremental partition: centralization
}
"""


class Editor:
    """An editor with one open text."""

    def __init__(self, client: LanguageClient, path: Path) -> None:
        self.client, self.uri, self.text, self.version = client, path.as_uri(), path.read_text("utf-8"), 1
        self.told: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

    @property
    def document(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.uri)

    def at(self, words: str, more: int = 0) -> types.Position:
        return position_at(self.text, self.text.index(words) + more)

    def open(self) -> None:
        item = types.TextDocumentItem(self.uri, "zen", self.version, self.text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type(self, text: str) -> None:
        self.text, self.version = text, self.version + 1
        name = types.VersionedTextDocumentIdentifier(self.version, self.uri)
        change = [types.TextDocumentContentChangeWholeDocument(text)]
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(name, change))

    async def diagnostics(self) -> list[tuple[str, str]]:
        """Return ids of the next diagnostics of the text, with the texts at their places."""
        told = await asyncio.wait_for(self.told.get(), 60)
        assert told.uri == self.uri and told.version == self.version
        return [(str(found.code), self.part(found.range)) for found in told.diagnostics]

    def part(self, place: types.Range) -> str:
        return self.text[offset_at(self.text, place.start) : offset_at(self.text, place.end)]

    async def hover(self, words: str) -> str:
        found = await self.client.text_document_hover_async(types.HoverParams(self.document, self.at(words, 1)))
        assert found is not None and isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def completions(self, position: types.Position) -> set[str]:
        found = await self.client.text_document_completion_async(types.CompletionParams(self.document, position))
        assert isinstance(found, list)
        return {item.label for item in found}

    async def definition(self, words: str) -> types.Location:
        found = await self.client.text_document_definition_async(
            types.DefinitionParams(self.document, self.at(words, 1))
        )
        assert isinstance(found, types.Location)
        return found

    async def rename(self, words: str, name: str) -> dict[str, list[types.TextEdit]]:
        params = types.RenameParams(self.document, self.at(words, 1), name)
        found = await self.client.text_document_rename_async(params)
        assert found is not None and found.changes is not None
        return {uri: list(edits) for uri, edits in found.changes.items()}


def applied(text: str, edits: list[types.TextEdit]) -> str:
    for edit in sorted(edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True):
        start, end = offset_at(text, edit.range.start), offset_at(text, edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    return text


async def session(folder: Path) -> list[tuple[str, str]]:
    """Return the last diagnostics of ``mine.zen``, after all that an editor does in a session."""
    client = LanguageClient("test", zenc.__version__)
    environment = {**os.environ, "PYTHONPATH": str(Path(zenc.__file__).resolve().parents[1])}
    await client.start_io(sys.executable, "-m", "zenc", "lsp", env=environment)
    editor = Editor(client, folder / "mine.zen")
    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda told: editor.told.put_nowait(told))
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    try:
        await typing(editor)
        await looking(editor, folder)
        await changing(editor, folder)
        return await saving_what_is_imported(editor, folder)
    finally:
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
        assert client._server is not None and client._server.returncode == 0


async def typing(editor: Editor) -> None:
    """Try that diagnostics come after each pause, also for broken texts, and go when the text is mended."""
    editor.open()
    assert await editor.diagnostics() == []
    right = editor.text
    editor.type(right.replace("incremental", "incrementl"))
    editor.type(right.replace("parallelism", "paralelism"))
    assert await editor.diagnostics() == [("unknown-value", "paralelism")], "the last text alone is looked at"
    editor.type(right.replace("balance:", "balance"))
    assert await editor.diagnostics() == [("syntax", "balanced")]
    assert "seed" in await editor.completions(editor.at("permutation(", len("permutation(")))
    editor.type(right + WRONG)
    assert await editor.diagnostics() == [], "the proof waits until the text is saved"
    editor.client.text_document_did_save(types.DidSaveTextDocumentParams(editor.document))
    assert [id for id, _ in await editor.diagnostics()] == ["never-complete"]
    editor.type(right)
    assert await editor.diagnostics() == []


async def looking(editor: Editor, folder: Path) -> None:
    assert "segments are merged at every hop" in await editor.hover("incremental")
    assert "the name of a schedule" in await editor.hover("communication")
    assert "parameter `seed` of scheme mine" in await editor.hover("seed)")
    assert "schedule point_to_point" in await editor.hover("point_to_point")
    assert await editor.completions(editor.at("incremental")) >= {"incremental", "one_shot"}
    assert await editor.completions(editor.at("point_to_point")) >= {"ring", "hierarchy", "theirs", "schedule"}
    place = await editor.definition("point_to_point")
    patterns = directory("schemes") / "patterns.zen"
    assert place.uri == patterns.resolve().as_uri()
    assert patterns.read_text("utf-8").splitlines()[place.range.start.line].startswith("schedule point_to_point")
    assert (await editor.definition("theirs")).uri == (folder / "other.zen").as_uri()
    assert (await editor.definition('"other.zen"')).uri == (folder / "other.zen").as_uri()
    assert editor.part((await editor.definition("seed)")).range) == "seed"


async def changing(editor: Editor, folder: Path) -> None:
    edits = await editor.rename("seed)", "key")
    assert applied(editor.text, edits[editor.uri]) == MINE.replace("seed", "key")
    both = await editor.rename("theirs", "ours")
    assert applied(editor.text, both[editor.uri]) == MINE.replace("theirs", "ours")
    assert applied(OTHER, both[(folder / "other.zen").as_uri()]) == OTHER.replace("theirs", "ours")
    for words, name, why in (
        ("seed)", "step", "can't be a name"),
        ("point_to_point", "direct", "comes with zenc"),
        ("incremental", "x", "has no other name"),
        ("theirs", "ring", "has a meaning here already"),
    ):
        try:
            await editor.rename(words, name)
        except JsonRpcException as refused:
            assert why in str(refused), refused
        else:
            raise AssertionError(f"{words} became {name}")
    params = types.DocumentFormattingParams(editor.document, types.FormattingOptions(4, True))
    edits_of_layout = await editor.client.text_document_formatting_async(params)
    assert edits_of_layout and "aggregation:   incremental" in applied(editor.text, list(edits_of_layout))


async def saving_what_is_imported(editor: Editor, folder: Path) -> list[tuple[str, str]]:
    """Save another text, which the open one may import: it is checked again."""
    other = Editor(editor.client, folder / "other.zen")
    other.told = editor.told
    other.open()
    assert await other.diagnostics() == []
    (folder / "other.zen").write_text(OTHER.replace("theirs", "hers"), "utf-8")
    other.type(OTHER.replace("theirs", "hers"))
    assert await other.diagnostics() == []
    editor.client.text_document_did_save(types.DidSaveTextDocumentParams(other.document))
    assert await other.diagnostics() == []
    found = await editor.diagnostics()
    other.uri = "file:///%00"  # no file can be called so, and the text is read all the same
    other.open()
    assert await other.diagnostics() == []
    return found


def test_a_session(tmp_path: Path) -> None:
    (tmp_path / "mine.zen").write_text(MINE, "utf-8")
    (tmp_path / "other.zen").write_text(OTHER, "utf-8")
    assert asyncio.run(asyncio.wait_for(session(tmp_path), 120)) == [("unknown-value", "theirs")]


FILES = sorted(directory("schemes").rglob("*.zen"))
VSCODE = directory("grammar") / "vscode"


class Tokens(_TreeReader):
    """Formatter that keeps the tokens it gets."""

    def __init__(self, text: str) -> None:
        super().__init__(Source("t", text), "start_file")
        self.found: list[Token] = []
        self.read()
        assert not self.problems

    def _remember(self, token: Token) -> None:
        super()._remember(token)
        if token.terminal != END:
            self.found.append(token)


def fits(token: Token, kind: object) -> bool:
    """Return whether a token of the grammar may have the colour ``kind``."""
    if token.terminal in ("NAME", "WORD"):
        return kind in Name or kind is Keyword.Type
    if token.terminal in NAMED:
        return kind in (String if token.terminal == "STRING" else Number)
    if token.terminal in PUNCTUATION:
        return kind in Punctuation
    return kind in Keyword if token.text.isalpha() and token.text not in OPERATOR_WORDS else kind in Operator


def coloured(text: str) -> dict[int, tuple[object, str]]:
    return {at: (kind, part) for at, kind, part in ZenLexer().get_tokens_unprocessed(text)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tokens_of_shipped_files_are_those_of_the_grammar(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    left = coloured(text)
    for token in Tokens(text).found:
        kind, part = left.pop(token.start)
        if part.startswith(token.text + "/") and kind is Keyword.Type:  # one unit, which is three terminals
            left |= {token.end: (Operator, "/"), token.end + 1: (Keyword.Type, part.partition("/")[2])}
        else:
            assert part == token.text, f"{path.name}: {part!r} is {token.text!r}"
        assert fits(token, kind), f"{path.name}: {part!r} is {token.terminal}, and coloured as {kind}"
    assert {kind for kind, _ in left.values()} <= {Comment.Single, Whitespace}


def test_all_that_the_grammar_knows_has_a_colour() -> None:
    known = tables()
    for word in known.words:
        assert any(re.search(rf"\b{word}\b", rule.pattern.replace(r"\b", " ")) for rule in rules()), word
    for name, pattern in known.terminals.items():
        assert name in ("NAME",) or any(pattern in rule.pattern for rule in rules()), name
    assert {kind for rule in rules() for kind in rule.kinds} == set(TOKENS) == {"", *tokens.SCOPES}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("300 GB/s", [Number, Whitespace, Keyword.Type]),
        ("push: auto", [Name.Attribute, Punctuation, Whitespace, Name]),
        ("push {", [Keyword, Whitespace, Punctuation]),
        ("parts - 1", [Name.Builtin, Whitespace, Operator, Whitespace, Number]),
        ("send parts 1", [Keyword, Whitespace, Keyword, Whitespace, Number]),
        ('"over\nlines" # note', [String.Double, Whitespace, Comment.Single]),
        ("let memory = 3", [Keyword, Whitespace, Name, Whitespace, Operator, Whitespace, Number]),
        ("scheme $", [Keyword, Whitespace, "Error"]),
    ],
)
def test_colours(text: str, kinds: list[object]) -> None:
    found = [kind for _, kind, _ in ZenLexer().get_tokens_unprocessed(text)]
    assert [str(kind).rpartition(".")[2] if kind not in TOKENS.values() else kind for kind in found] == kinds


def test_the_textmate_grammar_is_what_the_command_writes() -> None:
    path = directory("grammar") / tokens.PLACE
    assert path.read_text(encoding="utf-8") == tokens.textmate_text(), "run python -m zenc.editor.tokens"


def test_the_extension_names_what_is_there() -> None:
    package = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))
    (language,), (grammar,) = package["contributes"]["languages"], package["contributes"]["grammars"]
    assert language["extensions"] == [".zen"] and grammar["scopeName"] == tokens.textmate_grammar()["scopeName"]
    for place in (package["main"], language["configuration"], grammar["path"]):
        assert (VSCODE / place).is_file(), place
    settings = json.loads((VSCODE / language["configuration"]).read_text(encoding="utf-8"))
    assert settings["comments"]["lineComment"] == "#"

    """The entry point names the lexer, and no word of any block is an error to it."""
    root = Path(__file__).resolve().parents[2]
    assert 'zen = "zenc.editor.highlight:ZenLexer"' in (root / "pyproject.toml").read_text(encoding="utf-8")
    blocks = list(zen_blocks(root))
    assert len(blocks) > 5
    for block in blocks:
        assert all("Error" not in str(kind) for _, kind, _ in ZenLexer().get_tokens_unprocessed(block)), block


def zen_blocks(root: Path) -> Iterator[str]:
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        yield from re.findall(r"^```zen\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_pygments_finds_it_by_the_file() -> None:
    lexer = load_lexer_from_file(str(Path(tokens.__file__).parent / "highlight.py"), "ZenLexer")
    assert lexer.aliases == ["zen"]
