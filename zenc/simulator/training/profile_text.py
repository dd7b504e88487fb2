"""Text of a model profile: where the time of a step goes, and when the backward pass makes each gradient."""

from __future__ import annotations

from collections.abc import Iterator

from zenc.common.wording import aligned, count, seconds_text, share_text, size_text
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile

_HEAD = ("parameter", "shape", "size", "density", "forward", "ready")
BAR = 32
"""The width of a backward pass, in letters."""


def text(model: ModelProfile) -> str:
    """Return a table of the parameters, with bars for their times, in the order of gradients; others come last."""
    return "\n".join(_lines(model))


def _lines(model: ModelProfile) -> Iterator[str]:
    size = size_text(sum(each.bytes for each in model.parameters))
    yield f"{count(len(model.parameters), 'parameter')}, {size} of gradients, on {model.ranks} ranks by {model.backend}"
    parts = (("forward", model.seconds_forward), ("backward", model.seconds_backward))
    passes = "".join(f", {name} {seconds_text(seconds)}" for name, seconds in parts if seconds is not None)
    exposed = f"{seconds_text(model.seconds_exposed)} ({share_text(model.exposed_share)})"
    yield f"  a step takes {seconds_text(model.seconds_step)}{passes}; {exposed} waits for synchronisation alone"
    seen = model.in_order
    ordered = [*seen, *(each for each in model.parameters if each.ready is None)]
    rows = [(*_HEAD, ""), *((*_row(each), _bar(each, model)) for each in ordered)]
    yield from (f"  {line}" for line in aligned(rows, range(1, len(_HEAD))))


def _row(of: ParameterProfile) -> tuple[str, ...]:
    shape = "x".join(map(str, of.shape)) or "1"
    density = "" if of.density is None else share_text(of.density)
    seconds = ("" if each is None else seconds_text(each) for each in (of.forward, of.ready))
    return of.name, f"{shape} {of.dtype}", size_text(of.bytes), density, *seconds


def _bar(of: ParameterProfile, model: ModelProfile) -> str:
    if of.ready is None:
        return "not seen"
    whole = model.seconds_backward or max(each.ready or 0.0 for each in model.parameters) or 1.0
    return "-" * round(BAR * min(1.0, of.ready / whole)) + "|"
