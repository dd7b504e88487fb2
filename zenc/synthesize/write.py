"""The text of a scheme of packed trees: ranks as a rotation names them, so that one tree says what it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from zenc.language.formatter import format_text
from zenc.language.lexer import tables
from zenc.language.schedule import BUILTIN_NAMES, FUNCTIONS
from zenc.synthesize.loads import Packing, WeightedTree
from zenc.synthesize.rotation import Rotation
from zenc.topology.model import Topology

_WIDE = 100
_SEED = "seed = 0x5eed"
_PERMUTED = "balance: balanced by permutation(seed)", "push: auto", "pull: auto"
_BY_HOLDERS = ("balance: balanced by holders",)


class Form(NamedTuple):
    """The form of a scheme: trees in ``chunks``, which are 0 where values go straight to owners and round a ring.

    ``by_holders``: the parts of a rank are units that it holds; else the units are permuted.
    """

    chunks: int
    by_holders: bool = False

    def __str__(self) -> str:
        trees = f"trees in {self.chunks} chunk{'s' * (self.chunks > 1)}" if self.chunks else "straight to owners"
        return f"{trees}, by {'holders' if self.by_holders else 'permutation'}"


def scheme_text(topology: Topology, down: Packing, up: Packing | None, form: Form, comment: Iterable[str] = ()) -> str:
    """Return the text of a scheme in canonical layout: results go by the trees ``down``, and sums by those, or ``up``.

    Both have as many parts.
    """
    name, each = name_for(topology), down.each
    parameters = [*([f"chunks = {form.chunks}"] if form.chunks else []), *([] if form.by_holders else [_SEED])]
    cut = f"({f'{each} * ' if each > 1 else ''}chunks)" if form.chunks else ""
    lines = [
        *(f"# {line}" for line in comment),
        f"scheme {name}{_in_brackets(parameters)} {{",
        f'"{"Trees that load" if form.chunks else "A ring over"} the links of {topology.name} evenly."',
        f"communication: {f'{name}_trees(chunks)' if form.chunks else 'point_to_point then ring'}",
        "aggregation: incremental",
        f"partition: parallelism{cut}",
        *(_BY_HOLDERS if form.by_holders else _PERMUTED),
        "}",
        "",
    ]
    return format_text("\n".join([*lines, *(_schedule(topology, down, up) if form.chunks else [])]) + "\n", name)


def _in_brackets(parameters: Sequence[str]) -> str:
    return f"({', '.join(parameters)})" if parameters else ""


def _schedule(topology: Topology, down: Packing, up: Packing | None) -> list[str]:
    name = name_for(topology)
    return [
        f"schedule {name}_trees(chunks = 1) {{",
        f'"{_whose(down)}, in chunks that follow each other."',
        *([*_phase("push trees", topology, up)] if up else []),
        *_phase("pull trees" if up else "trees", topology, down),
        "}",
    ]


def _whose(packing: Packing) -> str:
    trees, kinds = len(packing.trees), len(packing.rotation.roots)
    many = f"{trees} tree{'s' * (trees > 1)}"
    return f"{many} for each rank, the same but for its root" if kinds == 1 else f"{many} for {kinds} kinds of ranks"


def _phase(word: str, topology: Topology, packing: Packing) -> Iterator[str]:
    places, size, each = _Places(packing.rotation, topology), topology.size, packing.each
    yield f"{word}(chunks) {{"
    yield f'require size == {size} "these trees are for the {size} ranks of {topology.name}"'
    yield from places.lets()
    yield "let first = rank * (parts / size)  # of the parts of the rank that a tree grows from"
    yield f"let share = parts / size{f' / {each}' if each > 1 else ''}"
    for tree, before in zip(packing.trees, _starts(packing.trees), strict=True):
        yield from places.tree(tree, before)
    yield "}"


def name_for(topology: Topology) -> str:
    """Return the name of a scheme for ``topology``: a word, and none that the language has a use for."""
    word = re.sub(r"\W+", "_", topology.name, flags=re.ASCII).strip("_").lower()[:40]
    return f"for_{word}" if word else "for_cluster"


def _starts(trees: Sequence[WeightedTree]) -> Iterator[int]:
    """Yield the parts of its root that come before those of each tree."""
    sums: dict[int, int] = {}
    for tree in trees:
        yield sums.get(tree.root, 0)
        sums[tree.root] = sums.get(tree.root, 0) + tree.parts


class _Places:
    """The names of ranks, as seen from the root of a tree."""

    def __init__(self, rotation: Rotation, topology: Topology) -> None:
        self.rotation, counts = rotation, rotation.counts
        self.strides = [prod(counts[level + 1 :]) for level in range(len(counts))]
        named = [level.name for level in topology.levels]
        told = tuple(level.count for level in topology.levels) == counts and len(set(named)) == len(named)
        fresh = told and all(re.fullmatch(tables().terminals["NAME"], name) for name in named)
        fresh = fresh and not {*named} & {*BUILTIN_NAMES, *FUNCTIONS, "first", "share", "chunks"}
        usual = ["rank"] if len(counts) == 1 else [f"{'abcdefgh'[level]}" for level in range(len(counts))]
        self.names = named if fresh and len(counts) > 1 else usual

    def lets(self) -> Iterator[str]:
        """Yield the statements that name the places of a root."""
        counts, turns = self.rotation.counts, self.rotation.turns
        if len(counts) == 1:
            return
        for level, (count, stride, turning) in enumerate(zip(counts, self.strides, turns, strict=True)):
            if turning:
                over = "rank" if stride == 1 else f"rank / {stride}"
                yield f"let {self.names[level]} = {over}{f' mod {count}' if level else ''}"

    def tree(self, tree: WeightedTree, before: int) -> Iterator[str]:
        """Yield the lines of a tree that carries its parts after the ``before`` first ones."""
        start = f"first + {before} * share" if before > 1 else "first + share" if before else "first"
        end = before + tree.parts
        yield f"tree parts {start} .. first + {f'{end} * ' if end > 1 else ''}share - 1 {{"
        below: dict[int, list[int]] = {}
        for node, above in enumerate(tree.parent.tolist()):
            if above >= 0:
                below.setdefault(above, []).append(node)
        queue = [tree.root]
        for node in queue:
            if node in below:
                yield from self._branch(tree.root, node, below[node])
                queue += below[node]
        yield "}"

    def _branch(self, root: int, node: int, below: Sequence[int]) -> Iterator[str]:
        line = f"branch {self._named(root, node)} ->"
        for place, each in enumerate(below):
            more = f" {self._named(root, each)}{',' * (place + 1 < len(below))}"
            if len(line) + len(more) > _WIDE:
                yield line
                line = "   "
            line += more
        yield line

    def _named(self, root: int, node: int) -> str:
        """Return ``node`` as an expression of the rank that is the root."""
        turns, counts = self.rotation.turns, self.rotation.counts
        if not any(turns):
            return str(node)
        if node == root and all(turns):
            return "rank"
        terms, fixed = [], 0
        ends = zip(self.rotation.places[root].tolist(), self.rotation.places[node].tolist(), strict=True)
        for level, (here, there) in enumerate(ends):
            stride, name = self.strides[level], self.names[level]
            if turns[level]:
                offset = (there - here) % counts[level]
                moved = f"({name} + {offset}) mod {counts[level]}" if offset else name
                terms.append(f"{moved} * {stride}" if stride > 1 else moved)
            else:
                fixed += there * stride
        return " + ".join([*terms, *([str(fixed)] if fixed else [])])
