"""The server on standard input and output: requests of the Language Server Protocol, by pygls."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from zenc._version import __version__
from zenc.editor.server.answers import complete, explain
from zenc.editor.server.known import Document, findings, nameable, renamed
from zenc.errors import Diagnostic, Span, ZencError
from zenc.language.formatter import format_text


def position_at(text: str, offset: int) -> types.Position:
    """Return the line and column of ``offset``, which counts characters from the start of the text."""
    start = text.rfind("\n", 0, offset) + 1
    return types.Position(text.count("\n", 0, start), _units(text[start:offset]))


def offset_at(text: str, position: types.Position) -> int:
    """Return the offset of ``position``, or the end of its line, or of the text, where it lies beyond these."""
    start = 0
    for _ in range(position.line):
        end = text.find("\n", start)
        if end < 0:
            return len(text)
        start = end + 1
    line = text[start:].partition("\n")[0]
    units = 0
    for place, character in enumerate(line):
        if units >= position.character:
            return start + place
        units += _units(character)
    return start + len(line)


def range_of(span: Span) -> types.Range:
    """Return the range of ``span`` in its own text."""
    text = span.source.text
    return types.Range(position_at(text, span.start), position_at(text, max(span.end, span.start)))


def uri_of(span: Span) -> str:
    """Return the file of ``span``, as editors name it."""
    return Path(span.source.path or span.source.name).resolve().as_uri()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


PAUSE = 0.25
"""Seconds without a key before a text is checked."""


class Server(LanguageServer):
    """A server with the documents of the open texts; at most one check of each is under way."""

    def __init__(self) -> None:
        super().__init__("zenc", __version__)
        self.documents: dict[str, Document] = {}
        self.looks: dict[str, asyncio.Task[None]] = {}

    def known(self, uri: str) -> Document:
        """Return the document of ``uri`` as it is now."""
        text = self.workspace.get_text_document(uri).source
        path = unquote(urlparse(uri).path).replace("\0", "?").encode(errors="replace")  # as any file is called
        document = self.documents.setdefault(uri, Document(Path(path.decode())))
        if document.program is None or document.text != text:
            document.read(text)
        return document

    def look(self, uri: str, prove: bool, pause: float = 0.0) -> None:
        """Report the diagnostics of ``uri``, after a pause without another request for them."""
        if uri in self.looks:
            self.looks[uri].cancel()
        self.looks[uri] = asyncio.get_running_loop().create_task(self._look(uri, prove, pause))

    async def _look(self, uri: str, prove: bool, pause: float) -> None:
        await asyncio.sleep(pause)
        document = self.known(uri)
        version = self.workspace.get_text_document(uri).version
        text = document.text
        found = await asyncio.to_thread(findings, text, document.path, prove)
        told = [_told(diagnostic, document) for diagnostic in found]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, told, version))

    def refuse(self, error: ZencError) -> JsonRpcInvalidParams:
        """Return the answer to a request that ``error`` stops."""
        return JsonRpcInvalidParams(error.diagnostics[0].message)


def _told(found: Diagnostic, document: Document) -> types.Diagnostic:
    """Return ``found`` in the text; at its first character where it is about another file, which is then named."""
    own = found.span is None or found.span.source.name == str(document.path)
    place = range_of(found.span) if found.span and own else types.Range(types.Position(0, 0), types.Position(0, 1))
    lines = [found.message if own else f"{found.span}: {found.message}", *(f"note: {note}" for note in found.notes)]
    if found.help:
        lines.append(f"help: {found.help}")
    kinds = types.DiagnosticSeverity
    severity = kinds.Warning if found.severity == "warning" else kinds.Error
    unused = [types.DiagnosticTag.Unnecessary] if found.id == "unused-name" else None
    return types.Diagnostic(place, "\n".join(lines), severity, found.id, source="zenc", tags=unused)


def make_server() -> Server:
    """Return a server with all its features; ``start_io`` runs it."""
    server = Server()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.look(params.text_document.uri, prove=True)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.look(params.text_document.uri, prove=False, pause=PAUSE)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.look(params.text_document.uri, prove=True)
        for uri, other in server.documents.items():
            if uri != params.text_document.uri:  # it may import what was saved
                other.read(other.text)
                server.look(uri, prove=False, pause=PAUSE)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.documents.pop(uri, None)
        if look := server.looks.pop(uri, None):
            look.cancel()

    _add_answers(server)
    _add_edits(server)
    return server


def _add_answers(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        document = server.known(params.text_document.uri)
        text = explain(document, offset_at(document.text, params.position))
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text)) if text else None

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[":", "(", "["]))
    def completion(params: types.CompletionParams) -> list[types.CompletionItem]:
        document = server.known(params.text_document.uri)
        return complete(document, offset_at(document.text, params.position))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> types.Location | None:
        document = server.known(params.text_document.uri)
        offset = offset_at(document.text, params.position)
        if file := document.imported(offset):
            return types.Location(file.resolve().as_uri(), types.Range(types.Position(0, 0), types.Position(0, 0)))
        found = document.symbol(offset)
        return types.Location(uri_of(found[0].declared), range_of(found[0].declared)) if found else None


def _add_edits(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare(params: types.PrepareRenameParams) -> types.Range:
        document = server.known(params.text_document.uri)
        try:
            return range_of(nameable(document, offset_at(document.text, params.position))[1])
        except ZencError as error:
            raise server.refuse(error) from error

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def rename(params: types.RenameParams) -> types.WorkspaceEdit:
        document = server.known(params.text_document.uri)
        try:
            places = renamed(document, offset_at(document.text, params.position), params.new_name)
        except ZencError as error:
            raise server.refuse(error) from error
        changes: dict[str, list[types.TextEdit]] = {}
        for span in places:
            changes.setdefault(_uri(server, document, span), []).append(types.TextEdit(range_of(span), params.new_name))
        return types.WorkspaceEdit(changes=changes)

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def layout(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        document = server.known(params.text_document.uri)
        try:
            return _edits(document.text, format_text(document.text, str(document.path)))
        except ZencError:
            return []  # its errors are shown already


def _uri(server: Server, document: Document, span: Span) -> str:
    """Return the file of ``span``, which must be saved on the disk as the editor shows it."""
    uri = uri_of(span)
    open_text = server.workspace.text_documents.get(uri)
    if span.source.name != str(document.path) and open_text and open_text.source != span.source.text:
        raise JsonRpcInvalidParams(f"{span.source.name} has changes that are not saved: save them first")
    return uri


def _edits(before: str, after: str) -> list[types.TextEdit]:
    """Return the lines that differ, so that the cursor stays where it is."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    return [
        types.TextEdit(types.Range(position_at(before, starts[a]), position_at(before, starts[b])), "".join(new[c:d]))
        for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
