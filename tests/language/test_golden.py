"""The syntax trees of all shipped schemes; golden plans cover the patterns that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from zenc.common.resources import directory
from zenc.errors import Source, Span
from zenc.language.files import LIBRARIES
from zenc.language.parse import parse

SHIPPED = sorted(path for path in directory("schemes").rglob("*.zen") if path.name not in LIBRARIES)


def lines(node: object, label: str = "", indent: int = 0) -> Iterator[str]:
    """Yield a line a node: its class and plain fields; then its children, each after the name of its field."""
    head = "  " * indent + (f"{label}: " if label else "")
    if isinstance(node, tuple):
        yield f"{head}[{len(node)}]"
        for item in node:
            yield from lines(item, indent=indent + 1)
    elif is_dataclass(node):
        values = {f.name: getattr(node, f.name) for f in fields(node) if f.compare}
        values = {name: value for name, value in values.items() if not isinstance(value, Source | Span)}
        plain = {n: v for n, v in values.items() if not is_dataclass(v) and not (isinstance(v, tuple) and v)}
        shown = "".join(f" {name}={value!r}" for name, value in plain.items() if value not in (None, ()))
        yield f"{head}{type(node).__name__}{shown}"
        for name, value in values.items():
            if name not in plain:
                yield from lines(value, name, indent + 1)
    else:
        yield f"{head}{node!r}"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_tree(path: Path, assert_golden: Callable[[str, str], None]) -> None:
    file = parse(Source(path.name, path.read_text(encoding="utf-8")))
    assert_golden(f"{path.stem}.tree.txt", "\n".join(lines(file)))
