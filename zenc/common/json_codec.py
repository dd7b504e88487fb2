"""Dataclasses as JSON data by the types of their fields, and back, whatever the data are.

dataclass = {key: field, ...}
tuple     = [item, ...]
Mapping   = {key: value, ...}
Enum      = its value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zenc.common.untrusted import as_number


@dataclass(frozen=True)
class Codec:
    """A way to write dataclasses as JSON data, and to read them.

    ``keys``: class -> a key for each of its fields, by default their names; "" for a field that is left out, as those
    beyond the last key are. A first ``KEY=VALUE`` is of no field, and always there. Of a union of classes the one is
    read whose first key the data have. ``leaves``: type -> the function that writes it, or that reads it. ``brief``:
    defaults are left out, but for empty lists. ``places``: nodes have their ``span``, as ``at`` behind all other keys.
    """

    keys: Mapping[type, tuple[str, ...]] = field(default_factory=dict)
    leaves: Mapping[Any, Callable[[Any], Any]] = field(default_factory=dict)
    brief: bool = False
    places: bool = False

    def encode(self, value: Any) -> Any:
        """Return ``value`` as JSON data."""
        kind: Any = type(value)
        if kind in self.leaves:
            return self.leaves[kind](value)
        if is_dataclass(value):
            constant, entries = _layout(kind, self.keys.get(kind), self.places)
            found = ((key, each, getattr(value, each.name)) for key, (each, _) in entries.items())
            told = ((key, v) for key, each, v in found if not self.brief or v != each.default or v == ())
            return constant | {key: self.encode(each) for key, each in told}
        if isinstance(value, tuple | list):
            return [self.encode(each) for each in value]
        if isinstance(value, Mapping):
            return {key: self.encode(each) for key, each in value.items()}
        return value.value if isinstance(value, Enum) else value

    def decode(self, kind: Any, data: Any) -> Any:
        """Return ``data`` as a ``kind``; raises ValueError, with the keys that lead to the fault, for others."""
        if kind is float:
            return as_number(data)
        if kind in self.leaves:
            return self.leaves[kind](data)
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._of_union(inner, data)
        if origin is tuple:
            return self._items(inner, exactly(data, list))
        if origin is Literal:
            return data if data in inner else exactly(data)
        if origin is not None:
            return {inner[0](name): self.item(data, name, inner[1]) for name in exactly(data, dict)}
        if is_dataclass(kind):
            return self._record(kind, exactly(data, dict))
        return kind(data) if issubclass(kind, Enum) else exactly(data, kind)

    def item(self, data: Any, key: Any, kind: Any) -> Any:
        """Return ``data[key]`` as a ``kind``; raises ValueError, with ``key``, for others."""
        try:
            return self.decode(kind, data[key])
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error

    def _of_union(self, kinds: tuple[Any, ...], data: Any) -> Any:
        some = tuple(each for each in kinds if each is not NoneType)
        if some != kinds:
            return None if data is None else self.decode(reduce(or_, some), data)
        if not is_dataclass(some[0]):
            return exactly(data, *some)
        for each in some:
            key, _, name = self.keys[each][0].partition("=")
            if key in exactly(data, dict) and name in ("", data[key]):
                return self._record(each, data)
        return exactly(data)

    def _items(self, kinds: tuple[Any, ...], data: list[Any]) -> tuple[Any, ...]:
        if kinds[-1] is ...:
            kinds = kinds[:1] * len(data)
        if len(kinds) != len(data):
            raise ValueError(f"expected {len(kinds)} items, found {data!r:.40}")
        return tuple(self.item(data, at, kind) for at, kind in enumerate(kinds))

    def _record(self, kind: Any, data: dict[str, Any]) -> Any:
        constant, entries = _layout(kind, self.keys.get(kind), self.places)
        if unknown := data.keys() - entries.keys() - constant.keys():
            raise ValueError(f"unknown keys: {', '.join(map(repr, sorted(unknown)[:5]))}")
        # of a field without any default both are MISSING
        needed = (key for key, (each, _) in entries.items() if each.default is each.default_factory)
        if lacking := [key for key in needed if key not in data]:
            raise ValueError(f"it lacks {', '.join(lacking)}")
        given = ((key, *entries[key]) for key in data if key in entries)
        return kind(**{each.name: self.item(data, key, hint) for key, each, hint in given})


@cache
def _layout(
    kind: type, keys: tuple[str, ...] | None, places: bool
) -> tuple[dict[str, str], dict[str, tuple[Field[Any], Any]]]:
    """Return the keys that a ``kind`` always has, with their values; and the field and its type by all other keys."""
    hints, own = get_type_hints(kind), [each for each in fields(kind) if each.init and each.name != "span"]
    names = [each.name for each in own] if keys is None else list(keys)
    constant = dict([names.pop(0).split("=")]) if names and "=" in names[0] else {}
    told = [(key, each) for key, each in zip(names, own, strict=False) if key]
    told += [("at", each) for each in fields(kind) if each.name == "span" and places]
    return constant, {key: (each, hints[each.name]) for key, each in told}


def exactly(data: Any, *kinds: type) -> Any:
    """Return ``data`` if it is of one of ``kinds``, and of no class of theirs; raises ValueError for others."""
    if type(data) not in kinds:
        expected = " or ".join(kind.__name__ for kind in kinds) or "another value"
        raise ValueError(f"expected {expected}, found {data!r:.40}")
    return data
