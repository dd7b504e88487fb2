"""The announce of a scheme: the schedule that gathers all index sets under ``balanced by holders``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zenc.errors import Span
from zenc.language import syntax
from zenc.scheme import model
from zenc.scheme.collector import Collector
from zenc.scheme.communication import Resolver

DEFAULT_ANNOUNCE = "point_to_point"


def resolve_announce(
    mapping: model.Mapping | None, entries: Mapping[str, syntax.EntrySyntax], resolver: Resolver, report: Collector
) -> model.Communication | None:
    """The schedule whose push gathers the index sets: the one that ``announce`` names, or point_to_point.

    None for other mappings than holders, where ``announce`` has no effect.
    """
    entry = entries.get("announce")
    if isinstance(mapping, model.Holders):
        span = entries["balance"].span
        default = syntax.Phrase((syntax.Word(syntax.Name(DEFAULT_ANNOUNCE, span=span), span=span),), span=span)
        return resolver.resolve(entry.value if entry else default)
    if entry is not None and mapping is not None:
        message = "announce has no effect: ranks tell each other what they hold under 'balanced by holders' only"
        report.warn("no-effect", message, entry.span, help="leave it out")
    return None


def refuse_holders(
    mapping: model.Mapping | None,
    entries: Mapping[str, syntax.EntrySyntax],
    tiers: Sequence[tuple[Span | None, model.Scheme]],
    report: Collector,
) -> None:
    """Report holders in a scheme of tiers, its own or those of one of ``tiers``: (where it is named, scheme)."""
    message = "owners among holders are not for tiers yet: all ranks of the group announce to all"
    help = "use 'balanced by permutation' there"
    if isinstance(mapping, model.Holders):
        report.error("not-with-holders", message, entries["balance"].span, help=help)
    for span, scheme in tiers:
        if isinstance(scheme.mapping, model.Holders):
            report.error("not-with-holders", f"'{scheme.name}' is balanced by holders: {message}", span, help=help)


def check_holders(
    mapping: model.Mapping | None,
    partition: model.Partition | None,
    formats: Mapping[str, model.Format | None],
    entries: Mapping[str, syntax.EntrySyntax],
    report: Collector,
) -> None:
    """Report what makes no sense under ``balanced by holders``: one part, and formats of indices.

    ``formats`` are those of ``push`` and ``pull``.
    """
    if not isinstance(mapping, model.Holders):
        return
    if partition is model.Partition.CENTRALIZATION:
        message = "owners among holders share the units out, and under centralization there is one part only"
        help = "write partition: parallelism, or leave out balance"
        report.error("not-with-holders", message, entries["balance"].span, help=help)
    for key, format in formats.items():
        if format not in (None, model.Format.AUTO):
            message = f"no format for the {key}: all ranks know the units before, so values travel alone"
            help = f"leave out {key}, or write {key}: auto"
            report.error("not-with-holders", message, entries[key].value.span, help=help)
