"""Scaling formulas as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from zenc.analysis.closed_form import volume_text
from zenc.analysis.scaling import PhaseFormulas, ScalingReport, in_blocks
from zenc.analysis.volume import PhaseVolume, Volume
from zenc.format_units import runs_text
from zenc.plurals import count

MOST_TERMS = 12
"""Of a sum that is counted for one number of ranks; a formula never has as many."""

LEGEND = "M: bytes of the dense tensor; d: density of one rank's gradient; d_k: of the sum of k ranks, gamma_k d"
UNKNOWN = "?"


def symbolic_text(found: ScalingReport) -> list[str]:
    """The formulas by phase, and what they are for; the counts of ``found.size`` ranks where they don't tell these."""
    lines: list[str] = []
    inside = bool(found.phases) and found.domain.holds(found.size)
    if found.phases:
        domain = f"{found.domain}" + (" that the scheme is for" if len(found.checked) < found.tried else "")
        lines.append(f"for {domain}, of the busiest rank (values alone; holds at {runs_text(found.checked)} ranks)")
        lines += _phases(found, found.phases, f" (counted among {found.size} ranks)" if inside else None)
    if not inside:
        why = "" if found.phases else "; no formula in n was found"
        lines.append(f"counted among {found.size} ranks, of the busiest (values alone{why})")
        lines += _phases(found, dict.fromkeys(found.at, _NO_FORMULAS), "")
    unknown = [f"  {UNKNOWN}: no formula in n was found"] if any(UNKNOWN in line for line in lines) else []
    return [*lines, *unknown, f"  {LEGEND}", *_blocks(found)]


_NO_FORMULAS = PhaseFormulas(None, None, None, None, None)


def _phases(found: ScalingReport, phases: Mapping[str, PhaseFormulas], mark: str | None) -> list[str]:
    """A line for each. What has no formula is counted, with ``mark`` behind it, or unknown where that is None."""
    width = max(map(len, found.at))
    texts = {name: _phase(formulas, found.at[name], mark) for name, formulas in phases.items()}
    return [f"  {name.ljust(width)}  {in_blocks(text, found.blocks[name])}" for name, text in texts.items()]


def _phase(formulas: PhaseFormulas, at: PhaseVolume, mark: str | None) -> str:
    def amount(formula: object, count: object, what: str = "") -> str:
        if formula is None and mark is None:
            return f"{UNKNOWN} {what}s" if what else UNKNOWN
        text = str(count if formula is None else formula)
        words = f"{text} {what}{'' if text == '1' else 's'}" if what else text
        return f"{words}{mark}" if formula is None else words

    steps = amount(formulas.steps, at.steps, "step")
    if steps.startswith("0 steps"):
        return "no steps"
    messages = _both(
        amount(formulas.messages_sent, at.messages_sent, "message"),
        amount(formulas.messages_received, at.messages_received, "message"),
    )
    volume = _both(amount(formulas.sent, _counted(at.sent)), amount(formulas.received, _counted(at.received)))
    return f"{steps}, {messages}, volume {volume}"


def _blocks(found: ScalingReport) -> list[str]:
    """What b means."""
    names: dict[int, list[str]] = {}
    for name, block in found.blocks.items():
        if block > 1 and (found.at[name].sent or found.at[name].received):
            names.setdefault(block, []).append(name)
    which = "; ".join(f"of {block} units in {' and '.join(phases)}" for block, phases in names.items())
    return [f"  b, b_k: the same as d, d_k of units in blocks that have any, {which}"] if which else []


def _counted(volume: Volume) -> str:
    kept = dict(sorted(volume.items())[:MOST_TERMS])
    more = len(volume) - len(kept)
    return volume_text(kept) + (f" + {count(more, 'more term')}" if more else "")


def _both(sent: str, received: str) -> str:
    return sent if sent == received else f"{sent} sent and {received} received"
