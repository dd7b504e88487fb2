"""Units of bandwidth, time and memory; a quantity of a text -> a number of bytes a second, seconds, or bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from zenc.common.wording import closest
from zenc.language.terms import Quantity
from zenc.scheme.arguments import Environment, constant
from zenc.scheme.collector import Collector

Kind = Literal["bandwidth", "latency", "memory"]

_SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

UNITS: Mapping[Kind, Mapping[str, float]] = MappingProxyType(
    {
        "bandwidth": {
            **{f"{prefix}B/s": factor for prefix, factor in (_SIZES | _BINARY).items()},
            **{f"{prefix}bit/s": factor / 8 for prefix, factor in _SIZES.items()},
        },
        "latency": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
        "memory": {f"{prefix}B": factor for prefix, factor in (_SIZES | _BINARY).items()},
    }
)
"""Kind -> unit -> its size in bytes a second, seconds or bytes. Bits are written out: b alone is taken for both."""

_EXAMPLES = {"bandwidth": "300 GB/s or 100 Gbit/s", "latency": "500 ns or 2 us", "memory": "80 GB or 2 TiB"}


def unit_problem(kind: Kind, unit: str) -> str | None:
    """Return the reason why ``unit`` does not fit a quantity of ``kind``, in words; None where it fits."""
    if unit in UNITS[kind]:
        return None
    other = next((name for name, units in UNITS.items() if unit in units), None)
    if other:
        return f"'{unit}' is a unit of {other}, and this is a {kind}"
    meant = _meant(kind, unit)
    return f"unknown unit '{unit}'; one of {', '.join(UNITS[kind])}" + (f" (did you mean '{meant}'?)" if meant else "")


_SPELLING = re.compile(r"([kmgt]i?|)(b|bits?|bytes?)(?:/s|ps|/sec|)", re.IGNORECASE)
"""A size, or one a second, as people write them: Gbps, gb/s, GBps, MiB/sec."""
_SECONDS = re.compile(r"(n|nano|u|micro|m|milli|)s(?:ecs?|econds?|)", re.IGNORECASE)
_TIMES = {"nano": "ns", "micro": "us", "milli": "ms"}


def _meant(kind: Kind, unit: str) -> str | None:
    """Return the unit of which ``unit`` is another spelling; None where there is no such unit."""
    if kind == "latency":
        seconds = _SECONDS.fullmatch(unit)
        return _TIMES.get(seconds[1].lower(), f"{seconds[1].lower()}s") if seconds else None
    found = _SPELLING.fullmatch(unit)
    if not found:
        return closest(unit, UNITS[kind])
    prefix = "k" if found[1].lower() == "k" else found[1].capitalize()
    is_bits = found[2] == "b" or found[2].lower().startswith("bit")
    name = f"{prefix}{'bit' if is_bits and kind == 'bandwidth' else 'B'}{'/s' if kind == 'bandwidth' else ''}"
    return name if name in UNITS[kind] else None


def amount(kind: Kind, quantity: Quantity, environment: Environment, report: Collector) -> float | None:
    """Return the number of ``quantity``; None, with a diagnostic, where it has no value or a wrong unit."""
    problem = unit_problem(kind, quantity.unit.text)
    if problem:
        report.error("unknown-unit", problem, quantity.unit.span, help=f"write {_EXAMPLES[kind]}")
    value = constant(quantity.value, environment, report)
    if problem or value is None:
        return None
    return scaled(value, UNITS[kind][quantity.unit.text])


def scaled(value: float, factor: float) -> float:
    """Return ``value`` times ``factor``; rounded as the decimal number is, where the factor is below 1."""
    return value / round(1 / factor) if factor < 1 else float(value * factor)


_QUANTITY = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]+(?:/s)?)\s*")


def amount_of_text(kind: Kind, text: str) -> float | str:
    """Return the number of ``text``, such as ``100 Gbit/s``; or the reason why it has no value, in words."""
    found = _QUANTITY.fullmatch(text[:100])
    if not found:
        return f"a {kind} is a number and a unit, such as {_EXAMPLES[kind]}, not {text[:40]!r}"
    problem = unit_problem(kind, found[2])
    return problem or scaled(float(found[1]), UNITS[kind][found[2]])


def bandwidth_text(bandwidth: float) -> str:
    """Return a bandwidth in bytes a second, as people say it: ``12.5 GB/s``."""
    return f"{_prefixed(bandwidth, _SIZES)}B/s"


def bits_text(bandwidth: float) -> str:
    """Return a bandwidth as links are sold: ``100 Gbit/s``."""
    return f"{_prefixed(bandwidth * 8, _SIZES)}bit/s"


def memory_text(memory: float) -> str:
    """Return a size as people say it: ``80 GB``, or ``2 TiB`` where that is the rounder number."""
    binary = [f"{memory / factor:g} {prefix}B" for prefix, factor in _BINARY.items() if memory >= factor]
    return min([f"{_prefixed(memory, _SIZES)}B", *reversed(binary)], key=len)


def latency_text(latency: float) -> str:
    """Return a time in seconds as people say it: ``300 ns``; a dash for 0."""
    for unit in ("s", "ms", "us"):
        if latency >= UNITS["latency"][unit]:
            return f"{latency / UNITS['latency'][unit]:.4g} {unit}"
    return f"{latency * 1e9:.4g} ns" if latency else "-"


def _prefixed(number: float, factors: dict[str, int]) -> str:
    """Return ``number`` by the greatest of ``factors``, which ascend, that it reaches."""
    prefix = next((prefix for prefix in reversed(factors) if number >= factors[prefix]), "")
    return f"{number / factors[prefix]:.4g} {prefix}"
