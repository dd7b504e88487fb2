"""Texts and JSON with a few random changes, and words and marks of the language and of other programs."""

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

WORDS = [
    "scheme", "schedule", "import", "push", "pull", "step", "for", "in", "if", "else", "let", "send", "require", "all",
    "strategy", "tensors", "above", "others", "on", "choose", "from",
    "part", "parts", "of", "to", "where", "and", "or", "not", "mod", "by", "then", "tier", "tier node(2): dense_ring",
    "topology", "levels", "link", "unlink", "switch", "memory", "like", "communication", "balance", "ring", "a", "rank",
    "size", "log2", "{", "}", "(", ")", ",", ":", "=", "==", "<", "<<", "..", "->", "+", "-", "*", "/", "^", "&", "|",
    ";", "%", "0", "1", "2.5", "0x7", "1e999", "3 GB/s", '"s"', "#", "\n", "\r", "\0\n", " ", "",
]  # fmt: skip
FOREIGN = [
    "<!DOCTYPE a>", "<system", "<cpu>", "</pci>", "<gpu dev=", "<nvlink target=", "<nic>", "<net speed=", "busid=",
    "tclass=", "<graphml>", "<node id=", "<edge source=", "<data key=", "nodes", "edges", "links", "rank", "bandwidth",
    "latency", "kind", "label", "hosts", "levels", "GPU0", "NIC0", "NV4", "X", "SYS", "PIX", "\t",
    '"nodes"', "[]", "null", "\0",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[str], words: Sequence[str]) -> str:
    """Draw a text with one to four stretches left out, doubled, or replaced by one of ``words`` or by anything."""
    text = draw(texts)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        kept = st.sampled_from(["", 2 * text[start:end], *words])
        text = text[:start] + draw(kept | st.text(max_size=5)) + text[end:]
    return text


def damaged_bytes(samples: Sequence[bytes], words: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Draw a change of ``samples`` that need not be texts."""
    texts = st.sampled_from([sample.decode("latin-1") for sample in samples])
    return damaged(texts, words).map(lambda text: text.encode("latin-1", "replace"))


def json_values(words: Sequence[str]) -> st.SearchStrategy[Any]:
    """Draw JSON of any kind, with ``words`` among its strings and its keys."""
    strings = st.text(max_size=8) | st.sampled_from(words)
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | strings
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3), max_leaves=5
    )


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, inner in items for path in paths(inner, (*here, key)))]


@st.composite
def damaged_json(draw: st.DrawFn, sample: Any, words: Sequence[str]) -> Any:
    """Draw ``sample`` with something in it left out, replaced, or with the whole of ``sample`` in its place."""
    data = copy.deepcopy(sample)
    *way, last = draw(st.sampled_from(paths(sample)[1:]))
    holder = data
    for key in way:
        holder = holder[key]
    if draw(st.booleans()):
        holder[last] = draw(json_values(words) | st.just(copy.deepcopy(sample)))
    else:
        del holder[last]
    return data
