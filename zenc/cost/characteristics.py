"""A profile in numbers that a person reads: Zen's three characteristics (OSDI 2025, section 2.3), and holders.

overlap         the share of a rank's units that another rank holds, too
densification   gamma^k = d_k / d: how much denser the sum of k ranks is than the gradient of one
skewness        the densest of k equal contiguous parts, over the mean one
holders         of the units that anyone holds: the share that exactly c of n ranks hold
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zenc.cost.plots import as_svg
from zenc.cost.profile import Floats, Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_SHOWN = 9
"""Numbers of holders in a line; the others are one."""


def ranks_of(profile: Profile, asked: int | None = None) -> int:
    """Among how many ranks holders are counted: as asked, or as recorded, or 8."""
    return asked or profile.ranks or 8


def numbers(n: int) -> list[int]:
    """The numbers of ranks of a table: powers of two up to 128, or up to ``n`` and ``n`` itself."""
    return sorted({1 << k for k in range(max(7, n.bit_length() - 1) + 1)} | {n})


def to_json(profile: Profile, n: int) -> dict[str, Any]:
    """All characteristics; those that hang on a number of ranks by that number."""
    k = numbers(n)
    recorded = profile.to_json()["recorded"]
    return {
        **{key: getattr(profile, key) for key in ("name", "units", "width", "dtype", "ranks", "density", "overlap")},
        "bytes": profile.units * profile.unit_bytes,
        "bytes_held": profile.units * profile.density * profile.unit_bytes,
        "densities": dict(zip(map(str, k), profile.union(k).tolist(), strict=True)),
        "densification": dict(zip(map(str, k), profile.densification(k).tolist(), strict=True)),
        "skewness": {str(parts): profile.skewness(parts) for parts in k},
        "holders": {"ranks": n, "share_of_held": _shares(profile, n).tolist(), "mean": _mean_holders(profile, n)},
        "recorded": recorded,
    }


def text(profile: Profile, n: int) -> str:
    """The same as a table."""
    k = numbers(n)
    unit = f"{profile.units:,} units of {profile.width} {profile.dtype} ({_size(profile.units * profile.unit_bytes)})"
    rows = [
        ["ranks k", *map(str, k)],
        ["density of their sum", *(_percent(each) for each in profile.union(k))],
        ["densification", *(f"{each:.2f}" for each in profile.densification(k))],
        ["skewness of k parts", *(f"{profile.skewness(each):.2f}" for each in k)],
    ]
    held = _size(profile.units * profile.density * profile.unit_bytes)
    return "\n".join(
        [
            f"{profile.name}: {unit}",
            *_origin(profile),
            f"  a rank holds         {_percent(profile.density)} of the units, {held}",
            f"  overlap              {_percent(profile.overlap)} of a rank's units another one holds, too",
            *("  " + row[0].ljust(20) + "".join(cell.rjust(8) for cell in row[1:]) for row in rows),
            *_holders(profile, n),
        ]
    )


def plot(profiles: Mapping[str, Profile], ranks: int | None) -> str:
    """A line of three panels for each profile, as SVG; raises CostError (``plots-missing``)."""

    def draw(figure: Figure) -> None:
        for line, profile in enumerate(profiles.values()):
            cells = [figure.add_subplot(len(profiles), 3, 3 * line + column) for column in (1, 2, 3)]
            _plot(cells, profile, ranks_of(profile, ranks))

    return as_svg(draw, 11, 3.4 * len(profiles))


def _plot(cells: Sequence[Axes], profile: Profile, n: int) -> None:
    k = np.unique(np.geomspace(1, max(128, n), 60).round())
    holders, densification, skew = cells
    holders.bar(np.arange(1, n + 1), _shares(profile, n) * 100, color="#4477aa")
    holders.set(xlabel=f"holders among {n} ranks", ylabel="% of the units that are held")
    holders.set_title(f"{profile.name}: overlap {profile.overlap:.3g}", fontsize=10)
    holders.locator_params(axis="x", integer=True)
    densification.plot(k, k, color="0.7", linestyle="--", label="no overlap")
    densification.plot(k, profile.densification(k), color="#4477aa", label=f"density {_percent(profile.density)}")
    densification.plot(k, np.ones(len(k)), color="0.7", linestyle=":", label="all the same")
    if profile.ranks:
        densification.axvline(profile.ranks, color="0.85", zorder=0)
    densification.set(xscale="log", yscale="log", xlabel="ranks", ylabel="densification", title="")
    densification.legend(frameon=False, fontsize=8)
    edges = np.linspace(0, 1, len(profile.ranges) + 1)
    each = profile.union_between(edges[:-1] * profile.units, edges[1:] * profile.units, 1)
    skew.stairs(each * 100, edges * 100, fill=True, color="#4477aa")
    skew.set(xlabel="units, in % of all", ylabel="density of a rank, %", ylim=(0, None))
    skew.set_title(f"skewness of 8 parts {profile.skewness(8):.3g}", fontsize=10)


def _origin(profile: Profile) -> list[str]:
    found = profile.recorded
    if found is None:
        return []
    steps = "1 step" if found.steps == 1 else f"{found.steps:,} steps"
    fit = f"sums are within {max(found.misfit * 100, 0.01):.2g} % of those counted"
    lines = [f"  recorded             on {profile.ranks} ranks, {steps}, {found.units:,} units looked at; {fit}"]
    if found.bytes_busiest:
        sent = f"{_size(found.bytes_mean)} by a rank on average, {_size(found.bytes_busiest)} by the busiest"
        lines.append(f"  sent in a call       {sent}")
    return lines


def _holders(profile: Profile, n: int) -> list[str]:
    shares = _shares(profile, n)
    shown = [f"{c + 1}: {_percent(share)}" for c, share in enumerate(shares[:_MOST_SHOWN])]
    if n > _MOST_SHOWN:
        shown.append(f"more: {_percent(float(shares[_MOST_SHOWN:].sum()))}")
    mean = f"{_mean_holders(profile, n):.2f} on average"
    return [f"  holders of a unit    among {n} ranks, {mean}, of the units that are held", "    " + "   ".join(shown)]


def _shares(profile: Profile, n: int) -> Floats:
    """Of the units that any of ``n`` ranks holds, the share that exactly c hold, for c = 1..n; [n]."""
    held = profile.holders(n)[1:]
    total = held.sum()
    return np.asarray(held / total if total else held)


def _mean_holders(profile: Profile, n: int) -> float:
    union = float(profile.union(n))
    return n * profile.density / union if union else 0.0


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %" if share >= 1e-5 or not share else f"{share * 100:.1g} %"


def _size(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
