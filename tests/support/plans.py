"""Plans for tests, from texts."""

from dataclasses import replace

from zenc.analysis.explanation import Explanation
from zenc.analysis.explanation import explain as explain_gradients
from zenc.gradients.index_sets import drawn
from zenc.gradients.spec import GradientSpec, source_of
from zenc.language.files import load_text
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.compression import Code, Residual, Selection, Top
from zenc.scheme.resolve import resolve


def plan_of(text: str, size: int | None = None, name: str = "mine.zen", scheme: str | None = None) -> Plan:
    """Return the plan of the one scheme in ``text``, or of the one that is named."""
    return lower(resolve(load_text(text, name), scheme)[0], size)


def explain(plan: Plan, size: int, rank: int, load: GradientSpec) -> Explanation:
    """Explain what ``rank`` of ``size`` does, with gradients drawn as ``load`` says."""
    return explain_gradients(plan, rank, drawn(load, size), load, source_of(load))


def plan_with(push: str, pull: str, size: int | None = None, aggregation: str = "incremental", parts: str = "") -> Plan:
    """Return the plan of a custom schedule: the statements of ``push`` and ``pull``, from line 3 and 5 on."""
    text = (
        "scheme mine { communication: schedule {\n"
        f"push {{\n{push}\n}} pull {{\n{pull}\n}} }}\n"
        f"aggregation: {aggregation} {parts or 'partition: parallelism balance: imbalanced'} }}"
    )
    return plan_of(text, size)


def lossy(plan: Plan, *codes: Code | None, select: tuple[Selection, ...] = (Top(0.01),)) -> Plan:
    """Return ``plan`` with a code and a selection before each phase, in order; the last of them repeat."""
    codes += codes[-1:] * (len(plan.phases) - len(codes))
    phases = [replace(phase, code=code, select=select) for phase, code in zip(plan.phases, codes, strict=True)]
    return replace(plan, phases=tuple(phases), feedback=Residual())


def selecting_merges(plan: Plan) -> Plan:
    """Return ``plan`` with a selection of all sums that ranks make in the steps of a push."""
    phases = [replace(phase, merge=() if phase.completes or phase.one_shot else (Top(0.02),)) for phase in plan.phases]
    return replace(plan, phases=tuple(phases), feedback=Residual())


DIRECT_PUSH = "step { for d in 1 .. size - 1 { send part (rank + d) mod size to (rank + d) mod size } }"
DIRECT_PULL = "step { for d in 1 .. size - 1 { send part rank to (rank + d) mod size } }"
