"""Checks of a strategy against the tensors of a model: rules that match no tensor, and impossible groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from zenc.common.wording import count, did_you_mean
from zenc.errors import Diagnostic, SchemeError, raise_if_any
from zenc.scheme.units import memory_text
from zenc.strategy.model import AllOthers, Cuts, Fused, NamedLike, Strategy, StrategyRule
from zenc.strategy.resolve import covering, tensors_text


class NamedSize(NamedTuple):
    """A tensor of a model by its name, with the bytes of its gradient."""

    name: str
    bytes: int


def matched(strategy: Strategy, tensors: Sequence[NamedSize]) -> dict[StrategyRule, list[NamedSize]]:
    """Return the tensors of each rule, which is the first that matches them, in the order of ``tensors``."""
    found: dict[StrategyRule, list[NamedSize]] = {rule: [] for rule in strategy.rules}
    for tensor in tensors:
        found[strategy.matching(*tensor)].append(tensor)
    return found


def check_model(
    strategy: Strategy, tensors: Sequence[NamedSize], bucket_ends: Sequence[int] = ()
) -> tuple[Diagnostic, ...]:
    """Return warnings about ``strategy`` for a model with ``tensors``, in the order in which their gradients are made.

    Args:
        strategy: one that is resolved.
        tensors: of the model, in the order of the backward pass.
        bucket_ends: indices of the tensors before which DDP's buckets end, but for the last; empty if not known.

    Raises:
        SchemeError: ``cuts-out-of-range`` for groups that end beyond the last tensor.
    """
    found = [*_unmatched(strategy, tensors), *_groups(strategy, tensors, bucket_ends)]
    raise_if_any(SchemeError, found)
    return tuple(found)


def _unmatched(strategy: Strategy, tensors: Sequence[NamedSize]) -> Iterator[Diagnostic]:
    for rule, own in matched(strategy, tensors).items():
        if own or isinstance(rule.tensors, AllOthers) or covering(strategy, rule):
            continue
        text = tensors_text(rule.tensors)
        if any(rule.tensors.matches(*tensor) for tensor in tensors):
            message = f"'{text}' matches no tensor of the model that is left by the rules before it"
            yield Diagnostic("shadowed-rule", message, rule.span, severity="warning")
        elif isinstance(rule.tensors, NamedLike):
            meant = did_you_mean(rule.tensors.pattern, [tensor.name for tensor in tensors])
            message = f"no tensor of the model is called '{rule.tensors.pattern}'{meant}"
            yield Diagnostic("no-such-tensor", message, rule.span, help=_NAMES, severity="warning")
        else:
            largest = memory_text(max((tensor.bytes for tensor in tensors), default=0))
            message = f"'{text}' matches no tensor of the model: the largest has {largest}"
            yield Diagnostic("no-such-tensor", message, rule.span, severity="warning")


_NAMES = "names are those of model.named_parameters(), without DDP's 'module.' before them; * stands for anything"


def _groups(strategy: Strategy, tensors: Sequence[NamedSize], bucket_ends: Sequence[int]) -> Iterator[Diagnostic]:
    groups, number = strategy.groups, len(tensors)
    edges = [0, *bucket_ends, number]
    sums = [0, *accumulate(tensor.bytes for tensor in tensors)]
    sizes = [sums[end] - sums[start] for start, end in pairwise(edges)]
    match groups:
        case Cuts(ends) if ends[-1] >= number:
            message = f"no group can end before tensor {ends[-1]}: the model has {count(number, 'tensor')}"
            help = f"cuts are from 1 to {number - 1}; `zenc profile show` lists the tensors in their order"
            yield Diagnostic("cuts-out-of-range", message, groups.span, help=help)
        case Cuts(ends) if bucket_ends and (missed := [end for end in ends if end not in bucket_ends]):
            listed = ", ".join(map(str, missed))
            message = f"DDP has no bucket that ends before {'tensor' if len(missed) == 1 else 'tensors'} {listed}"
            yield _coarse(f"{message}; a group ends with the bucket in which its cut is", strategy)
        case Fused(bytes) if bytes and bucket_ends and max(sizes) > bytes:
            message = f"buffers of {memory_text(bytes)} are asked for, and DDP's buckets have up to"
            yield _coarse(f"{message} {memory_text(max(sizes))}", strategy)


def _coarse(message: str, strategy: Strategy) -> Diagnostic:
    help = "wrap the model with bucket_cap_mb=1e-6, so that each gradient is a bucket of its own"
    return Diagnostic("coarse-buckets", message, strategy.groups.span, help=help, severity="warning")
