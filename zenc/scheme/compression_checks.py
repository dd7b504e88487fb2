"""Checks of compression that the text alone decides: allowed combinations, and a keeper for every loss.

    linear     a shorter tensor: dense phases only, before the first push, without a selection of units
    support    the other selections: a phase that sends an index, or nothing is gained
    exact      Fixed: one scale for all ranks, made once, so in the first push if it is anywhere
    transform  before a selection of units, which are coefficients then

The proof checks what depends on the moves: how often a contribution is encoded on its way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zenc.errors import Span
from zenc.language import syntax
from zenc.scheme import model
from zenc.scheme.collector import Collector
from zenc.scheme.compression import (
    UNBIASED,
    Decay,
    Falling,
    Fixed,
    Linear,
    LowRank,
    Momentum,
    Rounded,
    Rounding,
    Sketching,
    Vote,
)
from zenc.scheme.compression_words import share_of, words_of
from zenc.scheme.compressors import Compression
from zenc.scheme.references import Resolved

_NO_UNITS = "momentum is cleared where units were sent, so there must be a selection of units"
_INDEXED = frozenset(model.Format) - {model.Format.AUTO, model.Format.DENSE}


def check_compression(of: Compression, tier: model.TierDeclaration, mapping: model.Mapping, report: Collector) -> None:
    """Report conflicts within ``of``, or with the formats of its only ``tier``."""
    check = _Check(of, tier, report)
    if isinstance(mapping, model.Holders):
        check.holders()
    check.linear()
    check.sums()
    check_transform(of, tier, report)
    check.scales()
    if not report.failed:
        check.keeper()
        check.effects()
        check.gains()


def check_transform(own: Compression, first: model.TierDeclaration, report: Collector) -> None:
    """Report a transform without a selection of units in the ``first`` tier, or beside momentum."""
    if own.transform is None:
        return
    word, place = words_of(own.transform), own.said.get("transform")
    linear = [one for one in first.select if isinstance(one, Linear)]
    if linear:
        message = f"'{words_of(linear[0])}' takes no coefficients of '{word}': it makes a dense tensor by itself"
        report.error("not-linear", message, place, help="write select: top(0.01), or leave the transform out")
    elif not first.select:
        message = f"nothing is selected of the coefficients of '{word}', so the sum is that without it"
        report.error("wrong-value", message, place, help="write select: top(0.01), or leave the transform out")
    elif isinstance(own.feedback, Momentum):
        message = f"momentum is cleared where units were sent, and these are coefficients of '{word}'"
        report.error("conflicting-compression", message, place, help="write feedback: decay(0.9)")


def check_encoded(
    mapping: model.Mapping, of: Compression, entries: Mapping[str, syntax.EntrySyntax], report: Collector
) -> None:
    """Report ``balanced by encoded`` where sums travel unencoded: all ranks know the sizes of encoded sums."""
    if isinstance(mapping, model.Encoded) and of.pull_code is None:
        message = "parts are cut by the encoded sizes of their sums, and the pull sends values as they are"
        help = "give the pull a code, such as 'dense as fixed(8) by asc'; or write balance: balanced by permutation"
        report.error("unknown-sizes", message, entries["balance"].span, help=help)


class _Check:
    """The checks of one tier."""

    def __init__(self, of: Compression, tier: model.TierDeclaration, report: Collector) -> None:
        self.of, self.tier, self.report = of, tier, report
        self.units = [one for one in of.select if not isinstance(one, Linear)]
        self.linear_ones = [one for one in of.select if isinstance(one, Linear)]

    @property
    def everything(self) -> bool:
        """Return whether all units are summed, so that the sum is dense although its losses are kept."""
        return self.of.feedback is not None and not (self.of.select or self.of.merge or self.of.reselect)

    def error(self, id: str, message: str, key: str, help: str) -> None:
        """Report an error at the entry ``key``."""
        self.report.error(id, message, self.of.said.get(key), help=help)

    def holders(self) -> None:
        """Report codes and reselections under holders: values travel alone there, by indices that all ranks know."""
        for key in ("push_code", "pull_code", "merge", "reselect"):
            if getattr(self.of, key):
                what = "codes" if key.endswith("code") else "what is selected again"
                message = f"{what} can't stand beside 'balanced by holders': values travel alone there"
                self.error("not-with-holders", message, key, "write balance: balanced by permutation")
        if isinstance(self.of.feedback, Rounding):
            message = "what sums round away can't be kept beside 'balanced by holders': values travel alone there"
            self.error("not-with-holders", message, "feedback", "write balance: balanced by permutation")
        if self.linear_ones:
            message = f"'{words_of(self.linear_ones[0])}' makes a dense tensor, which all ranks hold all of"
            self.error("not-with-holders", message, "select", "write balance: imbalanced")

    def linear(self) -> None:
        """Report conflicts of a linear selection, a shorter dense tensor of the same coordinates on all ranks."""
        if not self.linear_ones:
            return
        word = words_of(self.linear_ones[0])
        if self.units:
            message = f"'{word}' makes a dense tensor, and '{words_of(self.units[0])}' a sparse one: one plan sums one"
            self.error("not-linear", message, "select", "keep selections of one kind")
        others = [one for one in self.linear_ones if not isinstance(one, LowRank)]
        if others and len(others) < len(self.linear_ones):
            message = f"a projection is of whole tensors, and '{words_of(others[0])}' takes a part of them"
            self.report.error("not-linear", message, self.of.said.get("select"), help="leave one of them out")
        sketches = [words_of(one) for one in self.linear_ones if isinstance(one, Sketching)]
        if len(sketches) > 1:
            message = f"'{sketches[0]}' and '{sketches[1]}' are two sketches of one tensor"
            self.error("not-linear", message, "select", "leave one of them out")
        for phase, format in (("push", self.tier.push), ("pull", self.tier.pull)):
            if format in _INDEXED:
                message = (
                    f"'{word}' makes a dense tensor, and the {phase} would send an index with it, as {format.value}"
                )
                self.error("not-linear", message, "select", f"write {phase}: dense")

    def sums(self) -> None:
        """Report conflicts of ``merge``, of sums on their way, and ``reselect``, of those of the owner of a part."""
        for key in ("merge", "reselect"):
            if any(isinstance(one, Linear) for one in getattr(self.of, key)):
                message = "what is selected of a sum are units, such as top(0.01)"
                self.error("not-linear", message, key, "a sketch, and units that all ranks know, are for 'select'")
        if self.of.merge and self.tier.aggregation is model.Aggregation.ONE_SHOT:
            message = "'merge' is for sums that are made on the way, and under one_shot there are none"
            self.error("wrong-value", message, "merge", "write aggregation: incremental")
        if self.of.reselect and self.tier.partition is model.Partition.CENTRALIZATION:
            message = "'reselect' is for the owner of a part, and under centralization there are no owners"
            self.error("wrong-value", message, "reselect", "write partition: parallelism")

    def scales(self) -> None:
        """Report conflicts of ``fixed``, which makes integers of the gradient once, before the first push."""
        if isinstance(self.of.pull_code, Fixed) and self.of.pull_code != self.of.push_code:
            message = f"the sums can't travel as '{words_of(self.of.pull_code)}': the contributions don't"
            help = "write the same code for the push: its scale is made before, once for all ranks"
            self.error("conflicting-compression", message, "pull_code", help)
        if isinstance(self.of.feedback, Momentum) and not self.units:
            self.error("wrong-value", _NO_UNITS, "feedback", "write feedback: residual, or select: top(0.01)")

    def keeper(self) -> None:
        """Report a biased loss that is neither kept nor given up by name, and a keeper of votes."""
        if "feedback" in self.of.said:
            check_votes(self.of, [self.tier], self.report)
            return
        for key in ("select", "merge", "reselect", "push_code", "pull_code"):
            loss = getattr(self.of, key)
            if loss and not isinstance(loss, (*UNBIASED, Rounded)):
                word = words_of(loss[0] if isinstance(loss, tuple) else loss)
                message = f"what '{word}' loses is kept nowhere, so sums stay wrong in one direction"
                kept = f"feedback: {'decay(0.9)' if isinstance(loss, Vote) else 'residual'}; or "
                help = f"write {kept}feedback: none, where it may be lost"
                self.error("needs-feedback", message, key, help)
                return

    def effects(self) -> None:
        """Warn of entries without an effect."""
        losses = [self.of.select, self.of.merge, self.of.reselect, self.of.push_code, self.of.pull_code]
        if isinstance(self.of.feedback, Rounding):
            self._rounding(any(losses))
        elif self.of.feedback and not any(losses):
            self.report.warn("no-effect", "nothing is lost, so there is nothing to keep", self.of.said.get("feedback"))
        if self.of.warmup and not self.of.select:
            message = "nothing is selected, so the first calls contribute everything as well"
            self.report.warn("no-effect", message, self.of.said.get("warmup"))
        elif isinstance(self.of.warmup, Falling):
            densities = [getattr(one, "density", self.of.warmup.start) for one in self.of.select]
            if min(densities) >= self.of.warmup.start:
                message = f"the density does not fall from {self.of.warmup.start:g}: it is no less to begin with"
                self.report.warn("no-effect", message, self.of.said.get("warmup"))

    def _rounding(self, loses: bool) -> None:
        """Report a conflict of ``rounding``, which is for sums that lose nothing else and are made in segments."""
        if loses:
            message = "'rounding' keeps what sums round away, and this scheme loses more"
            self.error(
                "conflicting-compression", message, "feedback", "write feedback: residual, which keeps all of it"
            )

    def gains(self) -> None:
        """Warn where the bytes are those of a dense sum, or more, whatever the gradient."""
        for key, selection, phase, format in (
            ("select", self.units, "push", self.tier.push),
            ("merge", self.of.merge, "push", self.tier.push),
            ("reselect", self.of.reselect, "pull", self.tier.pull),
        ):
            share = share_of(selection)
            if format is model.Format.COO and self.everything and getattr(self.of, f"{phase}_code"):
                key = f"{phase}_code"
                message = (
                    f"every unit of a dense gradient travels, with 4 bytes of index: more than a dense {phase} sends"
                )
            elif selection and format is model.Format.DENSE:
                message = f"a dense {phase} sends all units, +0 for those that are left out"
            elif format is model.Format.COO and share is not None and share >= 0.5:
                message = f"{share:g} of the units with 4 bytes of index each are no less than a dense {phase}"
            else:
                continue
            self.report.warn("no-gain", message, self.of.said.get(key), help=f"{phase}: auto takes the smallest format")
        share = share_of(self.linear_ones)
        if self.linear_ones and share is not None and share >= 1:
            message = f"what is sent is {share:g} times as much as the tensor itself"
            self.report.warn("no-gain", message, self.of.said.get("select"))


def check_compressed_tiers(own: Compression, tiers: Sequence[Resolved], report: Collector) -> None:
    """Report conflicts within one of ``tiers``, or with the entries ``own`` of their scheme."""
    all_of_them = [tier for resolved in tiers for tier in resolved.tiers]
    for resolved in tiers:
        for tier in resolved.tiers:
            _check_inside(all_of_them[: all_of_them.index(tier)], tier, resolved, report)
    losses = [_losses(tier) for tier in all_of_them]
    if isinstance(own.feedback, Momentum) and not any(tier.select for tier in all_of_them):
        report.error("wrong-value", _NO_UNITS, own.said.get("feedback"), help="write feedback: residual")
    elif own.feedback and not isinstance(own.feedback, Rounding) and not any(map(any, losses)):
        report.warn("no-effect", "nothing is lost, so there is nothing to keep", own.said.get("feedback"))


def _losses(of: model.TierDeclaration) -> tuple[object, ...]:
    return of.select, of.merge, of.reselect, of.push_code, of.pull_code


def check_votes(own: Compression, tiers: Sequence[model.TierDeclaration], report: Collector) -> None:
    """Report a keeper of what votes lose, and losses beside votes by momentum, in ``tiers``."""
    losses = [one for tier in tiers for one in _losses(tier) if one]
    if not own.feedback or not any(isinstance(one, Vote) for one in losses):
        return
    if not isinstance(own.feedback, Decay):
        message = "votes say nothing of magnitudes, so later ones can't make up for what they lose"
        help = "write feedback: none, or decay(0.9), which is momentum; or take the code sign, whose signs are weighed"
        report.error("conflicting-compression", message, own.said.get("feedback"), help=help)
    elif not all(isinstance(one, Vote) for one in losses):
        message = "beside votes 'decay' keeps momentum, and nothing of what else is lost"
        help = "vote by all values, in all codes; or write feedback: none"
        report.error("conflicting-compression", message, own.said.get("feedback"), help=help)


def losses_of(own: Compression, tiers: Sequence[Resolved]) -> list[tuple[Span | None, str]]:
    """Return the losses and keepers of ``own`` and of the schemes of ``tiers``: where they are said, and in words."""
    found = [
        (own.said.get(key), f"{key} is about what is lost")
        for key in ("feedback", "warmup", "transform")
        if getattr(own, key) is not None
    ]
    for named, scheme, inside in tiers:
        lossy = any(any(_losses(tier)) for tier in inside)
        if lossy or scheme.feedback is not None or scheme.warmup is not None:
            found.append((named.scheme.span, f"'{scheme.name}' selects or encodes"))
    return found


def _check_inside(
    inner: Sequence[model.TierDeclaration], tier: model.TierDeclaration, of: Resolved, report: Collector
) -> None:
    place = of.named.scheme.span
    linear = next((one for one in tier.select if isinstance(one, Linear)), None)
    if inner and linear is not None:
        message = f"'{words_of(linear)}' of '{of.scheme.name}' makes another tensor, which all tiers must sum"
        report.error("not-linear", message, place, help="put it in the innermost tier")
    fixed = next((one for one in (tier.push_code, tier.pull_code) if isinstance(one, Fixed)), None)
    if fixed is not None and any(fixed != other.push_code for other in inner):
        message = f"the sums of the tiers inside can't travel as '{words_of(fixed)}': their contributions don't"
        report.error("conflicting-compression", message, place, help="use it in all tiers")
