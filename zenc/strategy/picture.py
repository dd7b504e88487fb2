"""A strategy as a picture: its rules, a colour each, and with a model its tensors in the colours of their rules.

The tensors stand side by side as the backward pass makes their gradients, each as wide as it has bytes; lines part the
groups, or DDP's buckets where groups are made of these while a model trains. ``zenc.strategy.plot`` draws the events
over time, from a prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from zenc.common.wording import count, size_text
from zenc.draw.colour import distinct
from zenc.draw.scene import Mark, Scene, group, line, rectangle, text
from zenc.draw.sheet import MARGIN, Sheet, cut
from zenc.errors import Diagnostic, DrawingError
from zenc.strategy.checks import NamedSize
from zenc.strategy.model import Cuts, Fused, Groups, Strategy, StrategyRule
from zenc.strategy.resolve import groups_text, tensors_text

WIDTH = 900.0
STRIP = 46.0
"""The height of the tensors, in pixels."""
MOST_RULES = 200
MOST_TENSORS = 10_000


@dataclass(frozen=True, slots=True)
class StrategyDrawing:
    """The drawing of a strategy; ``ends``: indices of the tensors before which groups end, but for the last."""

    strategy: Strategy
    tensors: tuple[NamedSize, ...]
    ends: tuple[int, ...]
    picture: Scene

    def svg(self) -> str:
        """Return the text of an SVG file, which needs no other file, font or script."""
        return self.picture.svg()

    def words(self) -> str:
        """Return the subject of the drawing, in a line."""
        part = "group" if parts_tensors(self.strategy.groups) else "bucket"
        rules = f"{self.picture.title}, {count(len(self.strategy.rules), 'rule')}"
        of = f" and {count(len(self.tensors), 'tensor')} in {count(len(self.ends) + 1, part)}" if self.tensors else ""
        return rules + of

    def to_json(self) -> dict[str, object]:
        """Return the rules, and the tensors with the number of their rule, as JSON data."""
        rules = list(self.strategy.rules)
        of = [rules.index(self.strategy.matching(*tensor)) for tensor in self.tensors]
        tensors = [
            {"name": each.name, "bytes": each.bytes, "rule": rule} for each, rule in zip(self.tensors, of, strict=True)
        ]
        told = [{"rule": tensors_text(rule.tensors), "schemes": _schemes(rule)} for rule in rules]
        ends = {"ends": list(self.ends), "groups": groups_text(self.strategy.groups)}
        return {"strategy": self.strategy.name, "rules": told, "tensors": tensors, **ends}


def draw_rules(strategy: Strategy, tensors: Sequence[NamedSize] = (), ends: Sequence[int] = ()) -> StrategyDrawing:
    """Draw ``strategy``, and the ``tensors`` of a model in groups that end before the indices ``ends``.

    Raises DrawingError (``drawing-too-large``) for more rules or tensors than a picture can show.
    """
    if len(strategy.rules) > MOST_RULES or len(tensors) > MOST_TENSORS:
        message = f"a drawing shows {MOST_RULES} rules and {MOST_TENSORS:,} tensors at most"
        raise DrawingError(Diagnostic("drawing-too-large", message, help="zenc explain has all of them as a table"))
    part = "group" if parts_tensors(strategy.groups) else "bucket"
    title = f"Strategy {strategy.name}"
    sheet = Sheet(strategy.name, strategy.doc, title)
    sheet.heading(f"groups: {groups_text(strategy.groups)}", WIDTH)
    painted: list[Mark] = []
    colours = distinct(len(strategy.rules))
    sheet.y += 14
    for place, (rule, colour) in enumerate(zip(strategy.rules, colours, strict=True)):
        painted.append(_row(sheet, place, rule, colour))
    if tensors:
        painted += _tensors(strategy, tensors, colours, sheet.y + 44)
        painted += _borders(sheet, tensors, ends, sheet.y + 44, part)
    words = f"{count(len(strategy.rules), 'rule')}, the first that matches a tensor counts."
    picture = sheet.scene(WIDTH, sheet.y + MARGIN, words, painted)
    return StrategyDrawing(strategy, tuple(tensors), tuple(ends), picture)


def parts_tensors(groups: Groups) -> bool:
    """Return whether ``groups`` define their ends; others are DDP's buckets, or made of them while a model trains."""
    return isinstance(groups, Cuts) or (isinstance(groups, Fused) and groups.bytes is not None)


def _schemes(rule: StrategyRule) -> list[str]:
    return [each.name for each in rule.candidates]


def _row(sheet: Sheet, place: int, rule: StrategyRule, colour: str) -> Mark:
    sheet.write(22, cut(tensors_text(rule.tensors), 44), "rank", MARGIN + 24)
    where = f" on {rule.device}" if rule.device else ""
    told = f"{' or '.join(_schemes(rule))}{where}"
    sheet.texts.append(text(MARGIN + 330, sheet.y, cut(told, 80)))
    sign = rectangle(MARGIN, sheet.y - 12, 15, 15, fill=colour)
    return group("from", [sign], f"{tensors_text(rule.tensors)}: {told}", rule=place)


def _scale(tensors: Sequence[NamedSize]) -> list[float]:
    """Return the left edge of each tensor, and the right one of the last, in pixels."""
    sums = [0, *accumulate(tensor.bytes for tensor in tensors)]
    return [MARGIN + (WIDTH - 2 * MARGIN) * each / max(1, sums[-1]) for each in sums]


def _tensors(strategy: Strategy, tensors: Sequence[NamedSize], colours: Sequence[str], top: float) -> Iterator[Mark]:
    rules = list(strategy.rules)
    for tensor, (left, right) in zip(tensors, pairwise(_scale(tensors)), strict=True):
        rule = rules.index(strategy.matching(*tensor))
        title = f"{tensor.name}, {size_text(tensor.bytes)}: {tensors_text(rules[rule].tensors)}"
        box = rectangle(left, top, max(0.3, 0.94 * (right - left)), STRIP, fill=colours[rule])
        yield group("from", [box], title, rule=rule)


def _borders(sheet: Sheet, tensors: Sequence[NamedSize], ends: Sequence[int], top: float, part: str) -> Iterator[Mark]:
    """Yield a line where each ``part`` begins or ends, with its figures under it; the sheet is filled down to there."""
    edges = _scale(tensors)
    sheet.write(32, "Tensors as the backward pass makes their gradients, as wide as they have bytes", "quiet")
    for at in (0, *ends, len(tensors)):
        yield line(edges[at], top - 5, edges[at], top + STRIP + 5)
    sheet.y = top + STRIP + 20
    for number, (start, end) in enumerate(pairwise((0, *ends, len(tensors))), start=1):
        bytes = sum(tensor.bytes for tensor in tensors[start:end])
        room = int((edges[end] - edges[start]) / 6.2)
        label = f"{part} {number}: {count(end - start, 'tensor')}, {size_text(bytes)}"
        if room >= len(label) or room >= 12:
            sheet.texts.append(text(edges[start] + 2, sheet.y, cut(label, max(12, room)), "quiet"))
