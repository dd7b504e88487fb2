"""The rules of a strategy as a table: the tensors of each, their schemes, losses, and bytes.

RuleTable = strategy size? RuleRow+ groups        # with the tensors of a model, those of each rule
RuleRow   = rule SummedBy+                        # one for each scheme that may run
SummedBy  = scheme loss bytes of a value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zenc.common.wording import aligned, count, share_text, size_text
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.scheme.library import compression_text
from zenc.simulator.predict import predict
from zenc.strategy.checks import NamedSize, matched
from zenc.strategy.model import Strategy, StrategyRule
from zenc.strategy.resolve import groups_text, tensors_text

VALUES = 1 << 20
"""The number of values of the tensor that bytes are counted for: many, so that headers count for nothing."""


@dataclass(frozen=True, slots=True)
class SummedBy:
    """A scheme that may sum the tensors of a rule.

    ``loss``: its selections, codes and keepers; empty where nothing is lost. ``bytes``: those that the busiest rank
    sends for each float32 value of a dense gradient, expected where they depend on its values.
    """

    name: str
    loss: str
    bytes: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {"scheme": self.name, "loss": self.loss, "bytes_a_value": self.bytes}


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule with its schemes; ``tensors`` are those of the model that it covers, or None without a model."""

    rule: StrategyRule
    schemes: tuple[SummedBy, ...]
    tensors: tuple[NamedSize, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        told = {"tensors": [tensor.name for tensor in self.tensors]} if self.tensors is not None else {}
        schemes = [scheme.to_json() for scheme in self.schemes]
        return {"rule": tensors_text(self.rule.tensors), "device": self.rule.device, "schemes": schemes, **told}


@dataclass(frozen=True, slots=True)
class RuleTable:
    """The table of ``strategy`` among ``size`` ranks."""

    strategy: Strategy
    size: int
    rows: tuple[RuleRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        own = {"strategy": self.strategy.name, "ranks": self.size, "groups": groups_text(self.strategy.groups)}
        return {**own, "rules": [row.to_json() for row in self.rows]}

    def text(self) -> str:
        """Return the table in lines: a rule, and below it each further scheme that it may be summed by."""
        with_model = self.rows[0].tensors is not None
        heads = ["rule", *(["tensors", "bytes"] if with_model else []), "scheme", "device", "bytes a value", "loss"]
        lines = [heads, *(line for row in self.rows for line in self._lines(row, with_model))]
        return "\n".join([*self._heading(), "", *aligned(lines), "", *self._notes()])

    def _heading(self) -> list[str]:
        doc = [self.strategy.doc] if self.strategy.doc else []
        return [f"strategy {self.strategy.name}", *doc, f"groups: {groups_text(self.strategy.groups)}"]

    def _lines(self, row: RuleRow, with_model: bool) -> list[list[str]]:
        own = [tensors_text(row.rule.tensors)]
        if row.tensors is not None:
            bytes = sum(tensor.bytes for tensor in row.tensors)
            every = sum(tensor.bytes for each in self.rows for tensor in each.tensors or ())
            own += [str(len(row.tensors)), f"{size_text(bytes)} ({share_text(bytes / every if every else 0.0)})"]
        blank = [""] * len(own)
        cells = [[each.name, row.rule.device or "-", f"{each.bytes:.3g}", each.loss or "-"] for each in row.schemes]
        return [[*(own if at == 0 else blank), *each] for at, each in enumerate(cells)]

    def _notes(self) -> list[str]:
        several = ["Of several schemes the first runs until one is chosen for each tensor."]
        told = several if any(len(row.schemes) > 1 for row in self.rows) else []
        where = f"Bytes a value: what the busiest of {count(self.size, 'rank')} sends for a float32 value"
        return [*told, f"{where} of a dense gradient, of {VALUES:,} values; 4 bytes are one."]


def rule_table(
    strategy: Strategy, plans: Mapping[str, Plan], size: int, tensors: Sequence[NamedSize] | None = None
) -> RuleTable:
    """Return the table of ``strategy`` among ``size`` ranks.

    ``plans``: those of the schemes that run among these, by name.

    ``tensors`` are those of a model, in the order in which their gradients are made.
    """
    of_rule = matched(strategy, tensors) if tensors is not None else {}
    bytes: dict[str, float] = {}
    for name, plan in plans.items():
        bytes[name] = predict(plan, size, uniform(1.0, VALUES, 1, "f32")).sent / VALUES
    rows = []
    for rule in strategy.rules:
        of = (each for each in rule.candidates if each.name in bytes)
        summed = [SummedBy(each.name, compression_text(each.scheme), bytes[each.name]) for each in of]
        own = tuple(of_rule[rule]) if tensors is not None else None
        rows.append(RuleRow(rule, tuple(summed), own))
    return RuleTable(strategy, size, tuple(rows))
