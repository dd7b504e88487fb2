"""The strategies that come with zenc."""

from __future__ import annotations

from typing import TypedDict

from zenc.common.resources import directory
from zenc.language.files import STRATEGIES, load_file, shipped_in
from zenc.strategy.resolve import groups_text, resolve_strategy, tensors_text


class RuleEntry(TypedDict):
    """A rule of a strategy: ``tensors`` as its author writes it, the ``schemes`` that may run, and the device."""

    tensors: str
    schemes: list[str]
    device: str


class ShippedStrategy(TypedDict):
    """A strategy that comes with zenc."""

    name: str
    path: str
    groups: str
    rules: list[RuleEntry]
    summary: str


def shipped_strategy_entries() -> list[ShippedStrategy]:
    """Return the shipped strategies by name."""
    found = []
    for name in shipped_in(STRATEGIES):
        path = directory("schemes") / STRATEGIES / f"{name}.zen"
        strategy, _ = resolve_strategy(load_file(path))
        rules = [
            RuleEntry(
                tensors=tensors_text(rule.tensors), schemes=[each.name for each in rule.candidates], device=rule.device
            )
            for rule in strategy.rules
        ]
        groups = groups_text(strategy.groups)
        found.append(ShippedStrategy(name=name, path=str(path), groups=groups, rules=rules, summary=strategy.doc))
    return found
