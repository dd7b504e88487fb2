"""A plan on a topology as text for a terminal: the links by their load, and the busiest link of every step."""

from __future__ import annotations

import numpy as np

from zenc.analysis.link_load import StepLoad
from zenc.analysis.placement import Placement
from zenc.format_units import seconds_text, size_text
from zenc.plurals import count

MOST_LINKS = 12
MOST_STEPS = 24


def placement_text(placement: Placement) -> list[str]:
    """The bottleneck and the memory, then the links and the steps."""
    return [*placement.text(), *_links(placement), *_steps(placement)]


def _links(placement: Placement) -> list[str]:
    loads = placement.loads
    used = int((loads.total > 0).sum())
    order = np.argsort(-loads.seconds, kind="stable")[: min(used, MOST_LINKS)].tolist()
    if not order:
        return []
    width = max(len(loads.name(link)) for link in order)
    heading = f"links by load ({len(order)} of {used} that carry anything)"
    lines = [f"{heading:{width + 2}} {'bytes a call':>14} {'busy':>10}"]
    for link in order:
        bytes, busy = size_text(float(loads.total[link])), seconds_text(float(loads.seconds[link]))
        pad = max(0, len(heading) - width - 2)
        lines.append(f"  {loads.name(link):{width + pad}} {bytes:>14} {busy:>10}")
    return lines


def _steps(placement: Placement) -> list[str]:
    steps = placement.loads.steps
    lines = ["busiest link of each step"] if steps else []
    for step in steps[:MOST_STEPS]:
        lines.append(_step(placement, step))
    if len(steps) > MOST_STEPS:
        lines.append(f"  ... and {count(len(steps) - MOST_STEPS, 'more step')} (--json shows all)")
    return lines


def _step(placement: Placement, step: StepLoad) -> str:
    crowd = f", {step.moves} moves share it" if step.crowd else ""
    late = " (contended)" if step.contended else ""
    load = f"{size_text(step.bytes)}, busy {seconds_text(step.seconds)}"
    return f"  {step.phase}, step {step.number}: {placement.loads.name(step.link)}: {load}{crowd}{late}"
