"""The weight of messages: counted by hand, and against what the kernels write (``tests/targets``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import log2
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zenc.analysis import expected_bytes
from zenc.common.json_codec import Codec
from zenc.errors import Source, Span, Spanned
from zenc.runtime.cpu.geometry import Geometry
from zenc.scheme.compression import Code, Fixed, Float8, Integers, OneBit, RandomLevels, Rounded, Sign, Ternary
from zenc.scheme.model import Format
from zenc.wire.codes import encoded_bytes, is_static, most_encoded_bytes
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import (
    BY_BYTES,
    CPU_COSTS,
    GPU_COSTS,
    FormatCosts,
    format_costs,
    index_bytes,
    most_body_bytes,
    padded,
    slots_of,
    wire_format,
    wire_layout,
)
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES


@pytest.mark.parametrize(
    ("format", "slots", "count", "size"),
    [
        (Format.DENSE, 100, 100, 0),
        (Format.COO, 100, 0, 0),
        (Format.COO, 100, 1, 8),
        (Format.COO, 100, 2, 8),
        (Format.COO, 100, 3, 16),
        (Format.COO, 1 << 32, 3, 16),
        (Format.COO, (1 << 32) + 1, 3, 24),
        (Format.BITMAP, 0, 0, 0),
        (Format.BITMAP, 1, 0, 8),
        (Format.BITMAP, 64, 64, 8),
        (Format.BITMAP, 65, 1, 16),
        (Format.ELIAS_FANO, 0, 0, 0),
        (Format.ELIAS_FANO, 100, 0, 0),
        (Format.ELIAS_FANO, 100, 100, 0),
        (Format.ELIAS_FANO, 100, 1, 8 + 8),  # 6 bits; 1 + 1
        (Format.ELIAS_FANO, 100, 99, 8 + 8),
        (Format.ELIAS_FANO, 100, 50, 16),  # no bits; 50 + 50
        (Format.ELIAS_FANO, 1000, 40, 24 + 16),  # 160 bits; 40 + 60
        (Format.ELIAS_FANO, 1008, 63, 24 + 24),  # 189 bits; 63 + 118
        (Format.ELIAS_FANO, 1 << 62, 1, 8 + 8),
        (Format.ELIAS_FANO, 10, 11, 0),  # no error: a header may say anything
        (Format.BLOCK_2, 0, 0, 0),
        (Format.BLOCK_2, 128, 10, 8),
        (Format.BLOCK_2, 129, 10, 16),
        (Format.BLOCK_256, 64 * 256, 256, 8),
        (Format.BLOCK_256, 64 * 256 + 1, 256, 16),
        (Format.BLOCK_65536, 3, 3, 8),
    ],
)
def test_index_bytes(format, slots, count, size):
    assert index_bytes(format, slots, count) == size


def body_bytes(format, slots, count, unit_bytes):
    return wire_layout(format, slots, count, unit_bytes)[2]


def test_bodies_by_hand():
    """Rows are of 3 values of bf16: 5 of 100 slots, and all 7 slots of a short part."""
    assert body_bytes(Format.COO, 100, 5, 6) == 24 + 32 and body_bytes(Format.COO, 7, 7, 6) == 32 + 48
    assert body_bytes(Format.BITMAP, 100, 5, 6) == 16 + 32
    assert body_bytes(Format.AUTO, 7, 7, 6) == 0 + 48
    assert (MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES) == (48, 16)


@given(slots=st.integers(0, 1 << 34), share=st.floats(0, 1))
def test_auto_is_the_smallest_and_never_loses_presence(slots, share):
    count = int(slots * share)
    chosen = wire_format(Format.AUTO, slots, count)
    assert chosen in WIRE_FORMATS
    assert (chosen is Format.DENSE) == (count == slots)
    candidates = [f for f in WIRE_FORMATS if not f.block and (f is not Format.DENSE or count == slots)]
    assert index_bytes(chosen, slots, count) == min(index_bytes(f, slots, count) for f in candidates)


PICOSECONDS = st.integers(0, 1 << 20)
COSTS = st.just(BY_BYTES) | st.builds(FormatCosts, *[PICOSECONDS] * 5)
INDEXED = (Format.COO, Format.BITMAP, Format.ELIAS_FANO)


def picoseconds(format, slots, count, costs):
    """Return the cost of an index by the words of ``FormatCosts``."""
    words, listed = -(-slots // 64), min(count, slots - count)
    kernels = {
        Format.COO: words * costs.search + count * costs.coo,
        Format.BITMAP: words * costs.bitmap,
        Format.ELIAS_FANO: words * costs.search + listed * costs.elias_fano,
    }
    return index_bytes(format, slots, count) * costs.byte + kernels[format]


@given(slots=st.integers(1, 1 << 40), share=st.floats(0, 1, exclude_max=True), costs=COSTS)
def test_auto_is_the_cheapest_and_by_bytes_where_the_link_is_not_known(slots, share, costs):
    count = min(int(slots * share), slots - 1)
    by = costs if costs.byte else FormatCosts(1)
    each = {format: picoseconds(format, slots, count, by) for format in INDEXED}
    assert max(each.values()) < 1 << 64, "which 64 bits hold on GPUs"
    assert wire_format(Format.AUTO, slots, count, costs) is min(each, key=each.__getitem__)


def test_costs_by_link():
    """Over a slow link the smallest format is taken, over NVLink a bitmap; a link of a CPU lies between."""
    assert format_costs(0) == format_costs(0, gpu=True) == BY_BYTES
    chosen = [wire_format(Format.AUTO, 1 << 20, 10_000, format_costs(link, gpu)) for link, gpu in
              [(8000, False), (600, False), (100, False), (20, True), (2, True)]]  # fmt: skip
    assert [format.value for format in chosen] == ["elias_fano", "coo", "bitmap", "elias_fano", "bitmap"]


SLOTS = 1_000_000


def above_the_entropy(count: int) -> float:
    """Return the bits an index takes with ``auto``, less the entropy of random sets, H(d) / d."""
    d = count / SLOTS
    entropy = -log2(d) - (1 - d) / d * log2(1 - d)
    return 8 * index_bytes(wire_format(Format.AUTO, SLOTS, count), SLOTS, count) / count - entropy


def test_auto_is_near_the_entropy():
    """Padding of two words has to be small; Elias-Fano tends to 2 - log2(e) = 0.557."""
    assert max(above_the_entropy(count) for count in range(10_000, 100_000, 7)) < 0.57
    assert max(above_the_entropy(count) for count in range(100_000, SLOTS, 97)) < 0.5
    assert above_the_entropy(SLOTS - 1) < 0.5


@pytest.mark.parametrize("count", [10, 31, 100, 316, 1_000, 3_162])
def test_few_indices_are_near_the_entropy_but_for_two_words(count):
    assert above_the_entropy(count) < 0.6 + 2 * 64 / count
    assert count < 3_162 or above_the_entropy(count) < 0.6


def test_nothing_weighs_more_than_the_most():
    for slots in range(200):
        for unit_bytes in (0, 1, 2, 4, 7, 8, 12):
            formats = [format for format in WIRE_FORMATS if format.block in (0, 2, 64)]
            most = max(body_bytes(format, slots, count, unit_bytes) for format in formats for count in range(slots + 1))
            assert most <= most_body_bytes(slots, unit_bytes) <= most + 24


def test_blocks_go_by_their_names():
    assert [(format.value, format.block) for format in Format if format.block] == [
        (f"block({2**i})", 2**i) for i in range(1, 17)
    ]


@pytest.mark.parametrize("format", WIRE_FORMATS)
def test_a_format_that_is_named_is_kept(format):
    assert all(wire_format(format, 1000, count) is format for count in (0, 1, 999, 1000))


@given(
    slots=st.integers(0, 10_000), share=st.floats(0, 1), width=st.integers(1, 9), itemsize=st.sampled_from([2, 4, 8])
)
def test_bodies_keep_to_8_bytes(slots, share, width, itemsize):
    count, unit_bytes = int(slots * share), width * itemsize
    for format in WIRE_FORMATS:
        bytes = body_bytes(format, slots, count, unit_bytes)
        assert bytes % 8 == 0 and bytes >= count * unit_bytes


@given(st.integers(0, 1 << 62))
def test_padded(size):
    assert padded(size) % 8 == 0 and 0 <= padded(size) - size < 8


@given(units=st.integers(0, 1 << 40), parts=st.integers(1, 2000))
def test_parts_cover_the_units_and_agree_with_the_target(units, parts):
    cut = [slots_of(units, parts, part) for part in range(parts)]
    assert sum(cut) == units
    assert cut == sorted(cut, reverse=True), "only the last parts are shorter"
    geometry = Geometry(units, 1, parts)
    assert cut == [geometry.slots_of(part) for part in range(parts)]


@given(st.sampled_from(list(Format)), st.integers(0, 2**33), st.data(), st.integers(1, 5000))
def test_a_layout_is_what_the_single_questions_say(format, slots, data, unit_bytes):
    count = data.draw(st.integers(0, min(slots, 2**20)) | st.just(slots))
    chosen, index, body = wire_layout(format, slots, count, unit_bytes)
    assert chosen is wire_format(format, slots, count)
    assert index == index_bytes(chosen, slots, count)
    assert body == index + padded(count * unit_bytes)


@pytest.mark.parametrize("format", (*WIRE_FORMATS, Format.AUTO))
@given(
    slots=st.integers(1, 1 << 40),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    by=st.sampled_from([BY_BYTES, *(of._replace(byte=1 << n) for n in range(13) for of in (CPU_COSTS, GPU_COSTS))]),
)
def test_sizes_of_many_counts_at_once(format, slots, shares, by):
    """Expected messages are made of the sizes of real ones."""
    counts = [round(share * slots) for share in shares]
    found = expected_bytes.index_bytes(format, slots, np.array(counts, float), by).tolist()
    assert found == [index_bytes(wire_format(format, slots, count, by), slots, count) for count in counts]


@pytest.mark.parametrize(
    ("code", "count", "contributions", "size"),
    [
        (Rounded("bf16"), 3, 1, 6),
        (Integers(8, 8), 9, 1, 2 * 4 + 9),
        (Integers(3, 8), 9, 1, 2 * 4 + 4),
        (Float8(8), 9, 1, 2 * 4 + 9),
        (RandomLevels(64, 512), 513, 1, 2 * 4 + 513),  # 129 numbers: 8 bits
        (RandomLevels(1, 512), 8, 1, 4 + 2),
        (Sign(2048), 4096, 1, 2 * 4 + 512),
        (OneBit(2048), 2049, 1, 4 * 4 + 257),
        (Ternary(2048), 11, 1, 4 + 3),
        (Fixed(8), 5, 1, 4 + 5),
        (Fixed(8), 8, 2, 4 + 9),
        (Fixed(8), 8, 5, 4 + 11),
    ],
)
def test_bytes_of_values(code: Code, count: int, contributions: int, size: int) -> None:
    assert encoded_bytes(code, count, contributions) == size
    assert encoded_bytes(code, 0, contributions) == 0


def test_asc_has_a_bound_alone() -> None:
    code = Fixed(8, "asc")
    assert not is_static(code)
    assert most_encoded_bytes(code, 16385, 4) == 16 + 2 * 4 + 10 * 16384 // 8 + 2
    with pytest.raises(AssertionError):
        encoded_bytes(code, 1)


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


def test_what_is_written_is_read() -> None:
    assert json.loads(json.dumps(CODEC.encode(WHOLE))) == TOLD
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
