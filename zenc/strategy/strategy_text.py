"""The text of a strategy: rules that a person can read, made of a scheme for each tensor.

by size    where one size parts two schemes: tensors above 1 MB: one_bit, others: dense_ring
by name otherwise: patterns of the names that have one scheme, numbers as *, names alone where no pattern fits
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from zenc.strategy.step import VALUE_BYTES, StepTensor

WIDTH = 118
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
"""The number of a layer, in a name such as encoder.12.weight."""
UNWRITABLE = re.compile(r'["\x00-\x1f\x7f]')
"""A character that can't stand in a text of the language."""


def strategy_text(
    name: str,
    doc: str,
    tensors: Sequence[StepTensor],
    schemes: Sequence[str],
    groups: str = "",
    comment: Sequence[str] = (),
    named: Collection[str] = (),
) -> str:
    """Return the file of a strategy that gives ``tensors`` their ``schemes``; ``groups`` are in the language.

    Tensors that are ``named`` have a rule of their own, whatever the others have. ``doc`` holds no quotes; where
    a name does, * stands for them.
    """
    both = list(zip(tensors, schemes, strict=True))
    free = [(tensor, scheme) for tensor, scheme in both if tensor.name not in named]
    own = [(f'"{_written(tensor.name)}"', scheme) for tensor, scheme in both if tensor.name in named]
    rules, others = _by_size(free) or _by_name(free or both)
    entries = [f"    groups: {groups}"] if groups else []
    entries += [f"    tensors {which}: {scheme}" for which, scheme in (*own, *rules)]
    lines = [f"# {line}".rstrip() for line in comment]
    return "\n".join([*lines, f"strategy {name} {{", f'    "{doc}"', *entries, f"    others: {others}", "}", ""])


Rules = tuple[list[tuple[str, str]], str]
"""Rules, and the scheme of all others."""


def _by_size(free: Sequence[tuple[StepTensor, str]]) -> Rules | None:
    """Return one rule for tensors greater than some size, where that suffices; None where not, or if all are alike."""
    ordered = sorted(free, key=lambda each: each[0].numel)
    if len({scheme for _, scheme in free}) != 2:
        return None
    (least, small), (_, great) = ordered[0], ordered[-1]
    below = max((tensor.numel for tensor, scheme in free if scheme == small), default=least.numel)
    above = min(tensor.numel for tensor, scheme in free if scheme == great)
    return ([(f"above {below * VALUE_BYTES} B", great)], small) if small != great and below < above else None


def _by_name(free: Sequence[tuple[StepTensor, str]]) -> Rules:
    most = Counter(scheme for _, scheme in free).most_common(1)[0][0]
    return list(_patterns(free, most)), most


def _patterns(free: Sequence[tuple[StepTensor, str]], most: str) -> Iterator[tuple[str, str]]:
    of: dict[str, set[str]] = {}
    for tensor, scheme in free:
        of.setdefault(_pattern(tensor.name), set()).add(scheme)
    told: set[str] = set()
    for tensor, scheme in free:
        pattern = _pattern(tensor.name)
        which = pattern if len(of[pattern]) == 1 else _written(tensor.name)
        if scheme != most and which not in told:
            told.add(which)
            yield f'"{which}"', scheme


def _pattern(name: str) -> str:
    return NUMBER.sub("*", _written(name))


def _written(name: str) -> str:
    return UNWRITABLE.sub("*", name)
