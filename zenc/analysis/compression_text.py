"""Compression of a plan in sentences, for people: contributions, codes of values, and keepers of losses."""

from __future__ import annotations

from collections.abc import Iterator

from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.scheme.compression import UNBIASED, Decay, Dense, Momentum, Rounded, Shifted
from zenc.scheme.compression_words import selection_text, words_of
from zenc.scheme.model import Encoded


def sentences(plan: Plan) -> list[str]:
    """Return a sentence for each selection, code, keeper and warm-up of ``plan``; empty where its sums are exact."""
    if not plan.is_lossy:
        return []
    told = [sentence for phase in plan.phases for sentence in _of_phase(phase, plan)]
    told += [_kept(plan), *_begun(plan)]
    cut = "parts are equal in the first call of a name, and cut by the encoded sums of the last one in others"
    return [*told, cut] if isinstance(plan.mapping, Encoded) else told


def described(plan: Plan) -> str:
    """Return the doc string of ``plan``, and its compression in sentences."""
    told = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences(plan)]
    return " ".join(filter(None, [plan.doc, *told]))


def _of_phase(phase: Phase, plan: Plan) -> Iterator[str]:
    where = f" in tier {phase.tier.name}" if len(plan.tiers) > 1 else ""
    push = phase.kind is PhaseKind.PUSH
    if phase.select:
        whose = "a rank contributes" if push else "the owner of a part hands on"
        what = "its gradient" if push and phase.tier.depth == 0 else "what it holds" if push else "the sum"
        what = f"{words_of(plan.transform)} of {what}" if plan.transform and what == "its gradient" else what
        yield f"{whose} {selection_text(phase.select)} of {what}{where}"
    if phase.merge:
        yield f"a rank goes on with {selection_text(phase.merge)} of what it has merged in a step{where}"
    if phase.code:
        verb = "is rounded to" if isinstance(phase.code, Rounded) else "travels as"
        yield f"the {phase.kind.value}{where} {verb} {words_of(phase.code)}"


def _kept(plan: Plan) -> str:
    if plan.feedback is None:
        return f"what that loses is kept nowhere{_in_the_mean(plan)}"
    if isinstance(plan.feedback, Shifted):
        return (
            "gradients are less what their rank has sent so far, and the result is the sum of all that ranks have sent"
        )
    if isinstance(plan.feedback, Decay) and plan.votes:
        return f"ranks vote by momentum {plan.feedback.beta:g}, of which nothing is taken out, and no loss is kept"
    if isinstance(plan.feedback, Decay):
        return f"{plan.feedback.beta:g} times what that leaves is added to the next gradient of the same name"
    told = "what that loses is added to the next gradient of the same name"
    return f"{told}, with momentum {plan.feedback.m:g}" if isinstance(plan.feedback, Momentum) else told


def _in_the_mean(plan: Plan) -> str:
    """Return why losses need no keeper, in words, if they are right in the mean; an empty text otherwise."""
    codes = [phase.code for phase in plan.phases if phase.code is not None]
    rounded = any(isinstance(code, Rounded) and code.rounding == "nearest" for code in codes)
    unbiased = all(isinstance(code, (*UNBIASED, Rounded)) for code in codes)
    if any(phase.selects for phase in plan.phases) or not unbiased or not any(isinstance(c, UNBIASED) for c in codes):
        return ""
    return f", since it is right in the mean{', but for rounding' if rounded else ''}"


def _begun(plan: Plan) -> Iterator[str]:
    if isinstance(plan.warmup, Dense):
        yield f"the first {plan.warmup.steps:,} calls of a name contribute everything"
    elif plan.warmup:
        start, steps = plan.warmup.start, plan.warmup.steps
        yield f"the density falls from {start:g} in the first {steps:,} calls of a name, in stages of a quarter each"
