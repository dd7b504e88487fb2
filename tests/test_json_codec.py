"""The codec of dataclasses: written data are read, and others are refused with the keys that lead there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest

from zenc.common.json_codec import Codec
from zenc.errors import Source, Span, Spanned


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Leaf(Spanned):
    size: int
    label: str | None = None


@dataclass(frozen=True)
class Fork(Spanned):
    branches: tuple[Leaf | Fork, ...] = ()


@dataclass(frozen=True)
class Everything:
    number: float
    either: int | float
    pair: tuple[int, str]
    shares: Mapping[str, float]
    by_rank: dict[int, float]
    tree: Leaf | Fork
    colour: Colour
    side: Literal["left", "right"]
    rest: tuple[int, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    hidden: int = 7


KEYS: dict[type, tuple[str, ...]] = {
    Leaf: ("is=leaf", "size", "label"),
    Fork: ("fork",),
    Everything: ("n", "either", "pair", "shares", "by_rank", "tree", "", "side", "rest", "table"),
}
FORKED = Fork((Leaf(1), Fork((Leaf(2, "two"),)), Fork()))
WHOLE = Everything(0.5, 3, (1, "a"), {"x": 1.0}, {2: 0.25}, FORKED, Colour.RED, "left")
TOLD = {
    "n": 0.5, "either": 3, "pair": [1, "a"], "shares": {"x": 1.0}, "by_rank": {"2": 0.25},
    "tree": {"fork": [{"is": "leaf", "size": 1, "label": None}, {"fork": [{"is": "leaf", "size": 2, "label": "two"}]},
                      {"fork": []}]},
    "colour": "red", "side": "left", "rest": [], "table": {},
}  # fmt: skip
CODEC = Codec({**KEYS, Everything: tuple(TOLD)})


def through_text(data: Any) -> Any:
    return json.loads(json.dumps(data))


def test_what_is_written_is_read() -> None:
    assert through_text(CODEC.encode(WHOLE)) == TOLD
    assert list(CODEC.encode(WHOLE)) == list(TOLD)
    assert CODEC.decode(Everything, TOLD) == WHOLE
    assert "hidden" not in CODEC.encode(WHOLE) and "colour" not in Codec(KEYS).encode(WHOLE)


def test_a_brief_codec_leaves_out_defaults_but_empty_lists() -> None:
    brief = Codec(KEYS, brief=True)
    assert brief.encode(FORKED)["fork"][0] == {"is": "leaf", "size": 1}
    assert brief.encode(FORKED)["fork"][2] == {"fork": []}
    assert brief.decode(Leaf | Fork, brief.encode(FORKED)) == FORKED


def test_places_are_told_last_by_a_leaf() -> None:
    span = Span(Source("a.zen", "text"), 0, 1)
    codec = Codec(KEYS, {Span: lambda span: span.name}, places=True)
    assert list(codec.encode(Leaf(3, span=span)).items())[-1] == ("at", "a.zen:1:1")
    again = Codec(KEYS, {Span: lambda text: span}, places=True).decode(Leaf, codec.encode(Leaf(3, span=span)))
    assert again.span is span


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": "1"}, "n: '1' is no number"),
        ({"n": True}, "n: True is no number"),
        ({"either": None}, "either: expected int or float, found None"),
        ({"pair": [1]}, r"pair: expected 2 items, found \[1\]"),
        ({"pair": [1, 2]}, "pair: 1: expected str, found 2"),
        ({"shares": {"x": 10**400}}, "shares: x: a number of 401 digits"),
        ({"by_rank": {"one": 1.0}}, "by_rank: .*'one'"),
        ({"tree": {"fork": [{"is": "leaf"}]}}, "tree: fork: 0: it lacks size"),
        ({"tree": {"fork": [{"is": "stone", "size": 1}]}}, "tree: fork: 0: expected another value"),
        ({"tree": {"fork": [{"is": "leaf", "size": 1, "at": "here"}]}}, "unknown keys: 'at'"),
        ({"tree": 3}, "tree: expected dict, found 3"),
        ({"colour": "blue"}, "colour: 'blue' is not a valid Colour"),
        ({"side": "middle"}, "side: expected another value, found 'middle'"),
        ({"rest": [0, "b"]}, "rest: 1: expected int, found 'b'"),
        ({"hidden": 7}, "unknown keys: 'hidden'"),
    ],
)
def test_other_data_are_refused_where_they_are_wrong(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CODEC.decode(Everything, {**TOLD, **change})
