"""What a scheme costs in general, as text for a terminal."""

from __future__ import annotations

from zenc.plan.formula import volume_text
from zenc.plan.quantities import runs_text
from zenc.plan.symbolic import PhaseFormulas, Symbolic
from zenc.plan.volume import PhaseVolume, Volume

MOST_TERMS = 12
"""Of a sum that is counted for one number of ranks; a formula never has as many."""

LEGEND = "M: bytes of the dense tensor; d: density of one rank's gradient; d_k: of the sum of k ranks, gamma_k d"


def symbolic_text(found: Symbolic) -> list[str]:
    """The formulas by phase, and what they are for; the counts of ``found.size`` ranks where they don't tell these."""
    lines: list[str] = []
    width = max(map(len, found.at))
    if found.phases:
        domain = f"{found.domain}" + (" that the scheme is for" if len(found.checked) < found.tried else "")
        lines.append(f"for {domain}, of the busiest rank (values alone; holds at {runs_text(found.checked)} ranks)")
        for name, formulas in found.phases.items():
            lines.append(_phase(name.ljust(width), formulas, found.at[name], f" (counted among {found.size} ranks)"))
    if not (found.phases and found.domain.holds(found.size)):
        why = "" if found.phases else "; no formula in n was found"
        lines.append(f"counted among {found.size} ranks, of the busiest (values alone{why})")
        lines += [_phase(name.ljust(width), _NO_FORMULAS, at, "") for name, at in found.at.items()]
    return [*lines, f"  {LEGEND}"]


_NO_FORMULAS = PhaseFormulas(None, None, None, None, None)


def _phase(name: str, formulas: PhaseFormulas, at: PhaseVolume, counted: str) -> str:
    """One line; what has no formula is ``counted``."""

    def amount(formula: object, count: object, what: str = "") -> str:
        text = str(count if formula is None else formula)
        words = f"{text} {what}{'' if text == '1' else 's'}" if what else text
        return words + (counted if formula is None else "")

    steps = amount(formulas.steps, at.steps, "step")
    if steps.startswith("0 steps"):
        return f"  {name}  no steps"
    messages = _both(
        amount(formulas.messages_sent, at.messages_sent, "message"),
        amount(formulas.messages_received, at.messages_received, "message"),
    )
    volume = _both(amount(formulas.sent, _counted(at.sent)), amount(formulas.received, _counted(at.received)))
    return f"  {name}  {steps}, {messages}, volume {volume}"


def _counted(volume: Volume) -> str:
    kept = dict(sorted(volume.items())[:MOST_TERMS])
    more = len(volume) - len(kept)
    return volume_text(kept) + (f" + {more} more terms" if more else "")


def _both(sent: str, received: str) -> str:
    return sent if sent == received else f"{sent} sent and {received} received"
