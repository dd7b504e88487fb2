"""Files that describe clusters -> drafts; a file's kind is recognised by its contents, not by its name.

The files are data from elsewhere: sizes are bounded before parsing, XML with document types or entities is refused,
and nothing is fetched. Whatever the bytes, the outcome is a draft or a TopologyError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zenc.common.untrusted import open_file
from zenc.errors import Diagnostic, Source, Span, TopologyError
from zenc.topology.builder import TopologyBuilder
from zenc.topology.importers.machine import IMPORT_OPTIONS, Machine, Options, fill_with

__all__ = ["IMPORT_OPTIONS", "import_into", "is_topology_text", "read_bytes"]

MOST_BYTES = 1 << 25
_MARKUP = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\s\0]*<")
_GRAPHML = re.compile(rb"<(?:\w+:)?graphml\b")
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
_MATRIX = re.compile(rb"^(?:\x1b\[[0-9;]*m|[ \t])*GPU[0-9]+\b", re.MULTILINE)
_DECLARATION = re.compile(rb"^[ \t]*(?:topology|scheme|schedule|import)\b", re.MULTILINE)

Values = Mapping[str, "int | float | None"]


def read_bytes(path: Path, span: Span | None = None) -> bytes:
    """Return the bytes of a file; raises TopologyError where it can't be read or is too long."""
    try:
        with open_file(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TopologyError(Diagnostic("unreadable-file", f"can't read {str(path)!r}: {reason}", span)) from error
    if len(data) > MOST_BYTES:
        message = f"{path} is too large for a topology: more than {MOST_BYTES >> 20} MiB"
        raise TopologyError(Diagnostic("topology-too-large", message, span))
    return data


def is_topology_text(data: bytes) -> bool:
    """Return whether ``data`` is a text in the language: it declares something, and is of no other kind."""
    return _importer(data) is None and bool(_DECLARATION.search(data))


def import_into(draft: TopologyBuilder, paths: Sequence[Path], values: Values, span: Span | None = None) -> None:
    """Fill ``draft`` from files that a text asked for at ``span``.

    Args:
        draft: an empty draft.
        paths: one file: NCCL's XML, the text of ``nvidia-smi topo -m``, node-link JSON or GraphML; or several of the
            first two kinds, one for each machine of a cluster.
        values: what the files leave open, of ``IMPORT_OPTIONS``: counts, bytes a second, seconds.
        span: the place that errors of a file as a whole name.

    Raises:
        TopologyError: a file can't be read, is of no known kind, or is not what it seems.
    """
    options = Options.of(values, span)
    machines: list[Machine] = []
    kinds: list[str] = []
    for path in paths:
        data = read_bytes(path, span)
        _refuse_others(path, data, span)
        importer = _importer(data)
        if importer is None:
            data = unquoted(data)
            importer = _importer(data)
        source = Source(str(path), data.decode("utf-8-sig", "replace"))
        if importer is None:
            message = f"{path} holds no topology that zenc knows"
            help = "it reads NCCL's XML, nvidia-smi topo -m, node-link JSON, GraphML, and its own language"
            raise TopologyError(Diagnostic("unknown-format", message, span, help=help))
        kinds.append(importer.kind)
        if importer.machine:
            machines.append(importer.machine(data, source, options))
        elif importer.cluster and len(paths) == 1:
            options.refuse(importer.kind)
            importer.cluster(draft, data, source)
        else:
            message = f"{path} is {importer.kind}, which is a whole cluster and no machine of one"
            raise TopologyError(Diagnostic("wrong-arguments", message, span))
    if machines:
        read_from = f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else f"{paths[0]}, {kinds[0]}"
        draft.doc = draft.doc or f"Read from {read_from}."
        fill_with(draft, machines, options)


_DUMP = "NCCL_TOPO_DUMP_FILE=box.xml in the environment of a job writes what zenc reads"
_OTHERS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (
        re.compile(rb"hwloc[0-9.]*\.dtd|<topology\b[^>]*>\s*<object\b"),
        "the XML of hwloc, which has no bandwidths",
        f"{_DUMP}; so does nvidia-smi topo -m > box.txt",
    ),
    (
        re.compile(rb"ROCm System Management|(?:Weight|Hops|Link Type) between two GPUs|(?:ACCESS|WEIGHT|HOPS) TABLE:"),
        "what rocm-smi or amd-smi prints, which has no bandwidths",
        _DUMP,
    ),
    (
        re.compile(rb"^[ \t]*GPU0[ \t]+X[ \t]+(?:OK|CNS|GNS|TNS|NS|DR|U)\b", re.MULTILINE),
        "what nvidia-smi topo -p2p prints, which says whether GPUs reach each other, and not over what",
        "give the output of nvidia-smi topo -m",
    ),
)
"""Files that look like a topology: their mark, their kind in words, and the file to give instead."""


def _refuse_others(path: Path, data: bytes, span: Span | None) -> None:
    """Raise TopologyError (``unknown-format``) where the file is of a known kind that can't be read."""
    start = data[: 1 << 16].replace(b"\0", b"")
    for mark, what, help in _OTHERS:
        if mark.search(start):
            raise TopologyError(Diagnostic("unknown-format", f"{path} is {what}", span, help=help))


_QUOTE = re.compile(r"[ \t]*(?:>[> ]{0,8})")
_TELLING = re.compile(r"GPU[0-9]|<[a-z]")
"""Lines of a matrix or of XML, in contrast to other text pasted with them."""
_NUMBER = re.compile(r"[ \t]*[0-9]{1,6}(?:[:|.)] ?|[ \t])")


def unquoted(data: bytes) -> bytes:
    """Return the pasted text in UTF-8, without lines above it, and without ``> `` and numbers before its lines."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    nulls = data[:4096].count(0) * 3 > len(data[:4096])
    guessed = "utf-16-le" if data[1:2] == b"\0" else "utf-16-be"
    text = data.decode("utf-16" if wide else guessed if nulls else "utf-8-sig", "replace")
    lines = text.split("\n")
    for prefix in (_QUOTE, _NUMBER):
        if all(prefix.match(line) for line in lines if _TELLING.search(line)):
            lines = [line[found.end() :] if (found := prefix.match(line)) else line for line in lines]
    first = next((place for place, line in enumerate(lines) if _TELLING.search(line)), 0)
    return "\n".join(["" if place < first else line for place, line in enumerate(lines)]).encode()


@dataclass(frozen=True, slots=True)
class _Importer:
    """A kind of file: ``machine`` reads one machine, ``cluster`` a whole cluster."""

    kind: str
    machine: Callable[[bytes, Source, Options], Machine] | None = None
    cluster: Callable[[TopologyBuilder, bytes, Source], None] | None = None


def _importer(data: bytes) -> _Importer | None:
    from zenc.topology.importers import graph_files, nccl, smi

    if _MARKUP.match(data):
        if _GRAPHML.search(data[: 1 << 16].replace(b"\0", b"")):
            return _Importer("GraphML", cluster=graph_files.fill_from_graphml)
        return _Importer("NCCL's XML", machine=nccl.read)
    if _OBJECT.match(data):
        return _Importer("node-link JSON", cluster=graph_files.fill_from_node_link)
    return _Importer("a matrix of nvidia-smi", machine=smi.read) if _MATRIX.search(data) else None
