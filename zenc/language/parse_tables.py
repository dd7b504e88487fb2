"""The grammar as tables, by which a parser shifts and reduces: LALR(1).

    ParseTables = terminals: name -> pattern         # in the order in which they are tried
                  ignored: pattern                   # what may stand between tokens
                  word, words: text -> name          # the terminal of words; its texts that are terminals themselves
                  rules: Rule*
                  actions: (terminal -> n)*          # a state each: shift and go to state n, or reduce by rule -1 - n
                  gotos: (name of a rule -> state)*  # a state each: where to go when such a rule has been reduced
                  starts: name -> state
    Rule        = name x size x (Node | List | Same)
                  Node = name x Item*                # what the builder of this name makes of the items
                  List = Item*                       # part of the rule around it
                  Same = Item                        # its item and nothing else
    Item        = offset | [offset] | None      # a symbol, counted from the end; a list of several; an option not taken

lark works them out of ``grammar/zen.lark``. Those of the grammar that comes with zenc lie beside it, in
``grammar/zen.json``, which spares lark's tenth of a second in every process; of a grammar that was changed they are
worked out when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from zenc.resources import directory

Item: TypeAlias = int | list[int] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to write ``name``, of ``size`` symbols. It makes a ``node``, or a list, or is the same as its item."""

    name: str
    size: int
    node: str | None
    is_list: bool
    is_chain: bool
    """Whether it is another name for its only symbol."""
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ParseTables:
    """See the module. What it holds is no one's to change."""

    terminals: Mapping[str, str]
    ignored: str
    word: str
    words: Mapping[str, str]
    rules: list[Rule]
    actions: list[dict[str, int]]
    gotos: list[dict[str, int]]
    starts: Mapping[str, int]


@lru_cache(maxsize=1)
def tables() -> ParseTables:
    """The tables of the language."""
    folder = directory("grammar")
    grammar = (folder / "zen.lark").read_text(encoding="utf-8")
    kept = folder / "zen.json"
    data: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    if data.pop("grammar", "") != fingerprint(grammar):
        from zenc.language.generate_tables import worked_out

        data = worked_out(grammar)
        del data["grammar"]
    return ParseTables(**{**data, "rules": [_rule(rule) for rule in data["rules"]]})


def fingerprint(grammar: str) -> str:
    """A hash of a grammar's text, by which a file of tables says what it is of."""
    return hashlib.sha256(grammar.encode()).hexdigest()


def _rule(data: dict[str, Any]) -> Rule:
    size = len(data["symbols"])
    (kind,) = data.keys() & {"node", "list", "same"}
    items = [data["same"]] if kind == "same" else data["items"] if kind == "node" else data["list"]
    offsets = tuple(
        [place - size for place in item] if isinstance(item, list) else None if item is None else item - size
        for item in items
    )
    return Rule(data["name"], size, data.get("node"), kind == "list", kind == "same" and size == 1, offsets)
