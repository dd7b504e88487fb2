"""Generator of the parse tables: lark reads the grammar and builds its LALR(1) automaton.

    python -m zenc.language.generate_tables         # or: make tables; writes grammar/zen.json anew

``zenc/language/lexer.py`` describes them. States and rules have an order of their own, which does not
depend on that of lark's sets, so that the same grammar gives the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lark import Lark, Token
from lark.grammar import Rule, Terminal
from lark.lexer import PatternStr, TerminalDef
from lark.parsers.lalr_analysis import Shift

from zenc.common.resources import directory, fingerprint

STARTS = ("start_file", "start_block", "start_expression", "start_phrase")
WORD = "WORD"
"""The terminal that is read to its end in every state, so that ``total`` is never ``to`` and ``tal``."""

Data = dict[str, Any]


class WholeWords:
    """A postlex of lark that changes no token: its ``always_accept`` keeps ``WORD`` in every state's scanner."""

    always_accept = (WORD,)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Return the same stream; lark asks for this method of every postlex."""
        return stream


def grammar(text: str) -> Lark:
    """Load the grammar ``text`` with lark."""
    return Lark(
        text,
        parser="lalr",
        lexer="contextual",
        start=list(STARTS),
        postlex=WholeWords(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


def worked_out(text: str) -> Data:
    """Return the tables of the grammar ``text`` as JSON data, with the fingerprint of the grammar."""
    return {"grammar": fingerprint(text), **_tables(grammar(text))}


def _tables(lark: Lark) -> Data:
    rules = sorted(lark.rules, key=lambda rule: (rule.origin.name, [symbol.name for symbol in rule.expansion]))
    empty = {rule.origin.name for rule in rules if not rule.expansion}
    # So what a rule reads starts where its first symbol starts, and ends where its last one ends.
    assert not any(symbol.name in empty for rule in rules if len(rule.expansion) > 1 for symbol in rule.expansion)
    return {
        **_terminals(lark),
        "rules": [_rule(rule) for rule in rules],
        **_states(lark, {rule: number for number, rule in enumerate(rules)}),
    }


def _terminals(lark: Lark) -> Data:
    """Return the terminals in the order in which lark tries them: by priority, then the longest first."""
    ordered = sorted(lark.terminals, key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    word = next(terminal for terminal in ordered if terminal.name == WORD)
    words = [terminal for terminal in ordered if _is_word(terminal, word)]
    ignored = [terminal for terminal in ordered if terminal.name in lark.ignore_tokens]
    assert not any(re.compile(terminal.pattern.to_regexp()).groups for terminal in ordered)
    return {
        "terminals": {t.name: t.pattern.to_regexp() for t in ordered if t not in words and t not in ignored},
        "ignored": "|".join(terminal.pattern.to_regexp() for terminal in ignored),
        "word": WORD,
        "words": {terminal.pattern.value: terminal.name for terminal in sorted(words, key=lambda t: t.name)},
    }


def _is_word(terminal: TerminalDef, word: TerminalDef) -> bool:
    """Return whether the terminal is a special case of ``word``, and counts for it where the grammar takes it."""
    text = terminal.pattern.value
    special = isinstance(terminal.pattern, PatternStr) and re.fullmatch(word.pattern.to_regexp(), text) is not None
    assert not special or terminal.priority == word.priority
    return special


def _rule(rule: Rule) -> Data:
    name = rule.origin.name
    assert not rule.options.keep_all_tokens
    taken = _taken(rule)
    data: Data = {"name": name, "symbols": [symbol.name for symbol in rule.expansion]}
    if name.startswith("_"):
        return {**data, "list": taken}
    if rule.options.expand1 and not rule.alias:
        (only,) = taken
        return {**data, "same": only}
    return {**data, "node": rule.alias or name, "items": taken}


def _taken(rule: Rule) -> list[int | list[int] | None]:
    """Return the symbols that a rule keeps: a place, [the place of a list], or None for an option not taken."""
    symbols = enumerate(rule.expansion)
    found: list[int | list[int] | None] = []
    for empty in rule.options.empty_indices or [False] * len(rule.expansion):
        if empty:
            found.append(None)
            continue
        place, symbol = next(symbols)
        if not isinstance(symbol, Terminal):
            found.append([place] if symbol.name.startswith("_") else place)
        elif not symbol.filter_out:
            found.append(place)
    return found


def _states(lark: Lark, numbers: dict[Rule, int]) -> Data:
    configurations = {start: lark.parse_interactive("", start=start).parser_state.parse_conf for start in STARTS}
    states = configurations[STARTS[0]].states
    firsts = [configuration.start_state for configuration in configurations.values()]
    lasts = {configuration.end_state for configuration in configurations.values()}
    order = _order(states, firsts)
    place = {state: number for number, state in enumerate(order)}
    rows = [
        {
            symbol: place[argument] if action is Shift else -1 - numbers[argument]
            for symbol, (action, argument) in sorted(states[state].items())
        }
        | ({"$END": len(order)} if state in lasts else {})
        for state in order
    ]
    inner = {rule.origin.name for rule in numbers}
    return {
        "starts": {start: place[configuration.start_state] for start, configuration in configurations.items()},
        "actions": [{symbol: to for symbol, to in row.items() if symbol not in inner} for row in [*rows, {}]],
        "gotos": [{symbol: to for symbol, to in row.items() if symbol in inner} for row in [*rows, {}]],
    }


def _order(states: dict[int, dict[str, tuple[Any, Any]]], firsts: list[int]) -> list[int]:
    """Return the states in the order in which a search from ``firsts`` meets them."""
    found = dict.fromkeys(firsts)
    pending = list(firsts)
    for state in pending:
        targets = [argument for _, (action, argument) in sorted(states[state].items()) if action is Shift]
        pending += [target for target in dict.fromkeys(targets) if target not in found]
        found |= dict.fromkeys(targets)
    return list(found)


def text_of(data: Data) -> str:
    """Return ``data`` as JSON, with one terminal, rule or state a line."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(value)}" for key, value in data.items()) + "\n}\n"


def _lines(value: object) -> str:
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(item) for item in value) + "\n]"
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()) + "\n}"
    return json.dumps(value)


def main() -> None:
    """Write ``grammar/zen.json`` from ``grammar/zen.lark``."""
    folder = directory("grammar")
    text = (folder / "zen.lark").read_text(encoding="utf-8")
    (folder / "zen.json").write_text(text_of(worked_out(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
