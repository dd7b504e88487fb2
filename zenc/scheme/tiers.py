"""The tiers of a scheme -> their schemes, resolved; and what all of them share.

A tier names a scheme of this file, of an imported one, or one that comes with zenc, and may give it arguments. A tier
whose scheme has tiers itself stands for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from zenc.did_you_mean import did_you_mean
from zenc.language import syntax
from zenc.language.files import SourceFiles
from zenc.scheme import model
from zenc.scheme.arguments import Environment, constant_integer
from zenc.scheme.collector import Collector, listed
from zenc.scheme.references import Chain, Levels, Naming, Resolve

T = TypeVar("T")

MOST_MEMBERS = 1 << 16
MOST_TIERS = 8
"""Those that tiers stand for included. No cluster has as many levels."""


class Resolved(NamedTuple):
    """A tier of the text, its scheme, and the tiers that it stands for."""

    named: syntax.TierSyntax
    scheme: model.Scheme
    tiers: tuple[model.TierDeclaration, ...]


@dataclass
class TierResolver:
    """Resolves the tiers of the last scheme of ``chain``, each by ``resolve``."""

    program: SourceFiles
    chain: Chain
    environment: Environment
    levels: Levels
    report: Collector
    resolve: Resolve

    def resolved(self) -> list[Resolved]:
        """Each tier with its scheme, as far as they can be told; what can't be is in the report."""
        tiers = self.chain[-1].tiers
        self.report.twins("tier", ((tier.name.text, tier.name.span) for tier in tiers))
        naming = Naming(self.program, self.chain, self.environment, self.report, self.resolve)
        inner, found = 1, list[Resolved]()
        for tier in tiers[:MOST_TIERS]:
            levels = {name: ranks // inner for name, ranks in self.levels.items() if ranks % inner == 0}
            size = self._size(tier, levels, outermost=tier is tiers[-1])
            scheme = naming.scheme(tier.scheme, levels)
            if scheme is not None:
                found.append(Resolved(tier, scheme, tuple(self._opened(tier, scheme, size))))
            inner *= size or 1
        if len(tiers) > MOST_TIERS or sum(len(resolved.tiers) for resolved in found) > MOST_TIERS:
            span = tiers[min(len(tiers) - 1, MOST_TIERS)].name.span
            self.report.error("wrong-range", f"a scheme has at most {MOST_TIERS} tiers, with those of its tiers", span)
        return found

    def _opened(
        self, named: syntax.TierSyntax, scheme: model.Scheme, size: int | None
    ) -> Iterator[model.TierDeclaration]:
        """The tiers that a tier stands for; those of a scheme with tiers of its own are called NAME.ITS_NAME."""
        name = named.name.text
        *inner, last = scheme.tiers
        for tier in inner:
            yield replace(tier, name=f"{name}.{tier.name}", span=named.span)
        members = math.prod(tier.size or 1 for tier in inner)
        if size is not None and size % members:
            message = f"tier '{name}' has {size} members, and the tiers of '{scheme.name}' make groups of {members}"
            self.report.error("tier-size", message, named.span)
        whole = f"{name}.{last.name}" if inner else name
        yield replace(last, name=whole, size=None if size is None else size // members, span=named.span)

    def _size(self, tier: syntax.TierSyntax, levels: Levels, outermost: bool) -> int | None:
        if outermost:
            if tier.size is not None:
                message = f"'{tier.name.text}' is the outermost tier, which takes what is left of the group"
                self.report.error("tier-size", message, tier.size.span, help="leave its size out")
            return None
        if tier.size is None:
            return self._size_from_levels(tier, levels)
        size = constant_integer(tier.size, self.environment, self.report)
        if size is not None and not 1 <= size <= MOST_MEMBERS:
            self.report.error("wrong-range", f"a tier has 1 to {MOST_MEMBERS:,} members, not {size}", tier.size.span)
            return None
        return size

    def _size_from_levels(self, tier: syntax.TierSyntax, levels: Levels) -> int | None:
        name = tier.name.text
        if name not in levels:
            help = f"write how many members it has: tier {name}(8)"
            notes = (f"levels: {listed(self.levels)}{did_you_mean(name, self.levels)}",) if self.levels else ()
            self.report.error("tier-size", f"tier '{name}' has no size", tier.name.span, notes=notes, help=help)
        return levels.get(name)


def agreed(
    found: Sequence[Resolved],
    value: Callable[[model.Scheme], T],
    yielding: T,
    key: str,
    report: Collector,
) -> T:
    """The one value that the tiers agree on for ``key``, where ``yielding`` gives way to any other."""
    chosen: tuple[syntax.TierSyntax, T] | None = None
    for tier, scheme, _ in found:
        mine = value(scheme)
        if mine == yielding:
            continue
        if chosen is not None and chosen[1] != mine:
            message = f"tiers '{chosen[0].name.text}' and '{tier.name.text}' differ in their {key}"
            help = f"say one for all of them: {key}: ..."
            report.error("conflicting-tiers", message, tier.scheme.span, help=help)
        chosen = chosen or (tier, mine)
    return chosen[1] if chosen else yielding
