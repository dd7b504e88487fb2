"""The text of a strategy: rules that a person can read, made of a scheme for each tensor.

by size    where one size parts two schemes: tensors above 1 MB: one_bit, others: dense_ring
by name    else: patterns of the names that have one scheme, numbers as *, names alone where no pattern fits
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from zenc.strategy.step import VALUE_BYTES, StepTensor

WIDTH = 118
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
"""Of a layer, in a name such as encoder.12.weight."""


def strategy_text(
    name: str,
    doc: str,
    tensors: Sequence[StepTensor],
    schemes: Sequence[str],
    groups: str = "",
    comment: Sequence[str] = (),
    named: Collection[str] = (),
) -> str:
    """The file of a strategy that gives each of ``tensors`` its one of ``schemes``; ``groups`` as the language has it.

    Tensors that are ``named`` have a rule of their own, whatever the others have. ``doc`` and names hold no quotes.
    """
    free = [(t, scheme) for t, scheme in zip(tensors, schemes, strict=True) if t.name not in named]
    own = [(f'"{t.name}"', scheme) for t, scheme in zip(tensors, schemes, strict=True) if t.name in named]
    rules = [*own, *(_by_size(free) or _by_name(free))]
    others = Counter(scheme for _, scheme in free or own).most_common(1)[0][0]
    entries = [f"    groups: {groups}"] if groups else []
    entries += [f"    tensors {which}: {scheme}" for which, scheme in rules]
    lines = [f"# {line}".rstrip() for line in comment]
    return "\n".join([*lines, f"strategy {name} {{", f'    "{doc}"', *entries, f"    others: {others}", "}", ""])


def _by_size(free: Sequence[tuple[StepTensor, str]]) -> list[tuple[str, str]]:
    """One rule for what is greater than some size, where that says all; nothing where all are alike, or it can't."""
    other = Counter(scheme for _, scheme in free).most_common(1)[0][0] if free else ""
    ordered = sorted(free, key=lambda each: each[0].numel)
    great = next((scheme for _, scheme in reversed(ordered)), other)
    if great == other:
        smaller = {scheme for _, scheme in free} - {other}
        other = smaller.pop() if len(smaller) == 1 else other
    above = [t.numel for t, scheme in free if scheme == great]
    below = [t.numel for t, scheme in free if scheme == other]
    if great == other or len(above) + len(below) < len(free) or max(below) >= min(above):
        return []
    return [(f"above {max(below) * VALUE_BYTES} B", great)]


def _by_name(free: Sequence[tuple[StepTensor, str]]) -> list[tuple[str, str]]:
    """A rule for each pattern or name whose scheme is not that of most tensors."""
    most = Counter(scheme for _, scheme in free).most_common(1)[0][0] if free else ""
    return list(_patterns(free, most))


def _patterns(free: Sequence[tuple[StepTensor, str]], most: str) -> Iterator[tuple[str, str]]:
    of: dict[str, set[str]] = {}
    for tensor, scheme in free:
        of.setdefault(_pattern(tensor.name), set()).add(scheme)
    told: set[str] = set()
    for tensor, scheme in free:
        pattern = _pattern(tensor.name)
        which = pattern if len(of[pattern]) == 1 else tensor.name
        if scheme != most and which not in told:
            told.add(which)
            yield f'"{which}"', scheme


def _pattern(name: str) -> str:
    return NUMBER.sub("*", name)
