"""Mutants: single changes of a source text that a test should notice.

    Edit = bytes [start, end) of a file, and what stands there instead
    Mutant = an Edit of one file, with the line before and after it

Python is read by ``ast``: operators, comparisons, constants, statements removed, arguments swapped. C++ is read line by
line: the same but for arguments. Text that says nothing about behaviour is left alone: annotations, decorators,
docstrings, assertions, imports, and code for type checkers; so is the inside of f-strings, whose places no Python
before 3.12 knows.
"""

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, zip_longest
from pathlib import Path

COMPARISONS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip
ARITHMETIC = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|",
    "@": "*", "**": "*",
}  # fmt: skip
LOGIC = {"and": "or", "or": "and"}
_TOKENS = re.compile(rb"not\s+in\b|is\s+not\b|[<>=!]=|//|\*\*|<<|>>|[-+*/%<>&|^@]|\b(?:in|is|and|or)\b")
CPP_OPERATORS = {**{k: v for k, v in (COMPARISONS | ARITHMETIC).items() if not k.isalpha()}, "&&": "||", "||": "&&"}
_CPP_OPERATOR = re.compile(r"(?<= )(?:[<>=!]=|&&|\|\||<<|>>|[-+*/%<>&|^])(?= )")
_CPP_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_CPP_STATEMENT = re.compile(r"^\s+([A-Za-z_][\w.:\->\[\]]*( [-+*|&^]?= .*|\(.*\)));$")
_CPP_LEFT_ALONE = re.compile(
    r"^\s*(#|//|\*|template|using|static_assert|namespace|asm)|\bassert\(|[{%]%|constexpr \w+ \w+\["
)


@dataclass(frozen=True, slots=True)
class Edit:
    start: int
    end: int
    text: bytes
    what: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant of one line. ``path`` is relative to the root of the tree; ``line`` counts from 1."""

    path: str
    line: int
    before: str
    after: str
    what: str
    edit: Edit

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def mutant_of(path: str, source: bytes, edit: Edit) -> Mutant:
    changed = source[: edit.start] + edit.text + source[edit.end :]
    line = source.count(b"\n", 0, edit.start)
    before, after = (text.decode().splitlines()[line].strip() for text in (source, changed))
    return Mutant(path, line + 1, before, after, edit.what, edit)


def chosen(root: Path, paths: Sequence[str], seed: int, count: int) -> list[Mutant]:
    """Draw ``count`` different lines of ``paths`` by ``seed``, from each room in turn, and return a mutant of each.

    All lines of a room are equally likely, and every room gives as many as the next one, as long as it has some.
    """
    places: dict[tuple[str, int], list[Edit]] = {}
    for path in sorted(paths):
        source = (root / path).read_bytes()
        for edit in edits(path, source):
            places.setdefault((path, source.count(b"\n", 0, edit.start)), []).append(edit)
    drawn = random.Random(seed)
    rooms: dict[str, list[tuple[str, int]]] = {}
    for place in sorted(places):
        rooms.setdefault(room_of(place[0]), []).append(place)
    for of_room in rooms.values():
        drawn.shuffle(of_room)
    turns = (line for turn in zip_longest(*rooms.values()) for line in turn if line is not None)
    lines = list(islice(turns, count))
    return [mutant_of(path, (root / path).read_bytes(), drawn.choice(places[path, line])) for path, line in lines]


def room_of(path: str) -> str:
    """Return the folder of a stage or a target; for a module outside of these, that of the package."""
    return "/".join(Path(path).parent.parts[:2])


def edits(path: str, source: bytes) -> list[Edit]:
    """Return all edits of a file, in the order of their places."""
    found = python_edits(source) if path.endswith(".py") else cpp_edits(source)
    return sorted(found, key=lambda edit: (edit.start, edit.end, edit.text))


# Python -------------------------------------------------------------------------------------------------------------


def python_edits(source: bytes) -> Iterator[Edit]:
    places = _Places(source)
    for node in _behaviour(ast.parse(source)):
        yield from _of_operators(node, places)
        yield from _of_values(node, places)
        yield from _of_statements(node, places)


class _Places:
    """Places of the nodes of a text, in bytes."""

    def __init__(self, source: bytes) -> None:
        self.source, self._starts = source, [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the bytes [first, last) of ``node``."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def between(self, left: ast.expr, right: ast.expr, known: dict[str, str]) -> Iterator[Edit]:
        """Yield the edit that replaces the first operator of ``known`` between two operands, if there is one."""
        first, last = self.of(left)[1], self.of(right)[0]
        for match in _TOKENS.finditer(self.source[first:last]):
            token = " ".join(match[0].decode().split())
            if token in known:
                yield Edit(
                    first + match.start(), first + match.end(), known[token].encode(), f"{token} -> {known[token]}"
                )
                return


def _behaviour(node: ast.AST) -> Iterator[ast.AST]:
    """Yield ``node`` and all nodes within it that affect the behaviour of the program."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _says_nothing(child):
                yield from _behaviour(child)


def _says_nothing(node: ast.AST) -> bool:
    alias = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("TypeAlias")
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    checkers = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    imports = isinstance(node, ast.Import | ast.ImportFrom)
    return alias or docstring or checkers or imports or isinstance(node, ast.Assert | ast.JoinedStr)


def _of_operators(node: ast.AST, places: _Places) -> Iterator[Edit]:
    match node:
        case ast.Compare(left=left, comparators=rights):
            for one, other in pairwise([left, *rights]):
                yield from places.between(one, other, COMPARISONS)
        case ast.BinOp(left=left, right=right):
            yield from places.between(left, right, ARITHMETIC)
        case ast.BoolOp(values=values):
            for one, other in pairwise(values):
                yield from places.between(one, other, LOGIC)
        case ast.UnaryOp(op=ast.Not()):
            start = places.of(node)[0]
            yield Edit(start, start + len("not "), b"", "not removed")


def _of_values(node: ast.AST, places: _Places) -> Iterator[Edit]:
    match node:
        case ast.Constant(value=bool(value)):
            yield Edit(*places.of(node), str(not value).encode(), f"{value} -> {not value}")
        case ast.Constant(value=int() | float() as value):
            yield Edit(*places.of(node), str(value + 1).encode(), f"{value} -> {value + 1}")
        case ast.Call(args=[one, other, *_]) if not {type(one), type(other)} & {ast.Starred, ast.GeneratorExp}:
            (a, b), (c, d) = places.of(one), places.of(other)
            source = places.source
            if source[a:b] != source[c:d]:
                yield Edit(a, d, source[c:d] + source[b:c] + source[a:b], "arguments swapped")


def _of_statements(node: ast.AST, places: _Places) -> Iterator[Edit]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield Edit(*places.of(node), b"pass", "statement removed")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield Edit(*places.of(node), b"pass", "statement removed")


# C++ ----------------------------------------------------------------------------------------------------------------


def cpp_edits(source: bytes) -> Iterator[Edit]:
    start, comment = 0, False
    for line in source.decode("ascii", "replace").splitlines(keepends=True):
        code, comment = _code_of(line, comment)
        if not _CPP_LEFT_ALONE.search(line):
            yield from _edits_of_line(code, start)
        start += len(line)


def _code_of(line: str, comment: bool) -> tuple[str, bool]:
    """Return ``line`` with comments and quoted text masked, and whether a comment goes on after it.

    ``comment``: whether the line begins within one.
    """
    if comment:
        inside, ends, rest = line.partition("*/")
        return (" " * (len(inside) + 2) + rest, False) if ends else (" " * len(line), True)
    line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'|/\*.*?\*/', lambda match: "_" * len(match[0]), line)
    code, opened, _ = line.partition("//")[0].partition("/*")
    return code.rstrip(), bool(opened)


def _edits_of_line(code: str, start: int) -> Iterator[Edit]:
    for match in _CPP_OPERATOR.finditer(code):
        other = CPP_OPERATORS[match[0]]
        yield Edit(start + match.start(), start + match.end(), other.encode(), f"{match[0]} -> {other}")
    for match in _CPP_NUMBER.finditer(code):
        other = str(int(match[0]) + 1)
        yield Edit(start + match.start(), start + match.end(), other.encode(), f"{match[0]} -> {other}")
    if (match := _CPP_STATEMENT.match(code)) and not re.match(r"\s+(return|delete|throw|else|using)\b", code):
        yield Edit(start + match.start(1), start + match.end(1), b"", "statement removed")
