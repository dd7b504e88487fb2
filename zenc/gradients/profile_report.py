"""The characteristics of a profile: overlap, densification, skewness (Zen, OSDI 2025, section 2.3), and holders.

overlap         the share of a rank's units that another rank holds, too
densification gamma^k = d_k / d: the density of the sum of k ranks over that of one gradient
skewness        the densest of k equal contiguous parts, over the mean one
holders the share of the units that anyone holds which exactly c of n ranks hold
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zenc.common.wording import share_text, size_text
from zenc.gradients.profile import Floats, Profile

_MOST_SHOWN = 9
"""Most numbers of holders in a line; the others are one."""


def ranks_of(profile: Profile, asked: int | None = None) -> int:
    """Return the number of ranks that holders are counted among: as asked, or as recorded, or 8."""
    return asked or profile.ranks or 8


def numbers(n: int) -> list[int]:
    """Return the numbers of ranks of a table: powers of two up to 128, or up to ``n`` and ``n`` itself."""
    return sorted({1 << k for k in range(max(7, n.bit_length() - 1) + 1)} | {n})


def to_json(profile: Profile, n: int) -> dict[str, Any]:
    """Return all characteristics; those that depend on a number of ranks by that number."""
    k = numbers(n)
    recorded = profile.to_json()["recorded"]
    return {
        **{key: getattr(profile, key) for key in ("name", "units", "width", "dtype", "ranks", "density", "overlap")},
        "bytes": profile.units * profile.unit_bytes,
        "bytes_held": profile.units * profile.density * profile.unit_bytes,
        "densities": dict(zip(map(str, k), profile.union(k).tolist(), strict=True)),
        "densification": dict(zip(map(str, k), profile.densification(k).tolist(), strict=True)),
        "skewness": {str(parts): profile.skewness(parts) for parts in k},
        "holders": {
            "ranks": n,
            "share_of_held": shares_of_holders(profile, n).tolist(),
            "mean": _mean_holders(profile, n),
        },
        "recorded": recorded,
    }


def text(profile: Profile, n: int) -> str:
    """Return all characteristics as a table."""
    k = numbers(n)
    unit = (
        f"{profile.units:,} units of {profile.width} {profile.dtype} ({size_text(profile.units * profile.unit_bytes)})"
    )
    rows = [
        ["ranks k", *map(str, k)],
        ["density of their sum", *(share_text(each) for each in profile.union(k))],
        ["densification", *(f"{each:.2f}" for each in profile.densification(k))],
        ["skewness of k parts", *(f"{profile.skewness(each):.2f}" for each in k)],
    ]
    held = size_text(profile.units * profile.density * profile.unit_bytes)
    return "\n".join(
        [
            f"{profile.name}: {unit}",
            *_origin(profile),
            f"  a rank holds         {share_text(profile.density)} of the units, {held}",
            f"  overlap              {share_text(profile.overlap)} of a rank's units another one holds, too",
            *("  " + row[0].ljust(20) + "".join(cell.rjust(8) for cell in row[1:]) for row in rows),
            *_holders(profile, n),
        ]
    )


def _origin(profile: Profile) -> list[str]:
    found = profile.recorded
    if found is None:
        return []
    steps = "1 step" if found.steps == 1 else f"{found.steps:,} steps"
    fit = f"sums are within {max(found.misfit * 100, 0.01):.2g} % of those counted"
    lines = [f"  recorded             on {profile.ranks} ranks, {steps}, {found.units:,} units looked at; {fit}"]
    if found.bytes_busiest:
        sent = f"{size_text(found.bytes_mean)} by a rank on average, {size_text(found.bytes_busiest)} by the busiest"
        lines.append(f"  sent in a call       {sent}")
    return lines


def _holders(profile: Profile, n: int) -> list[str]:
    shares = shares_of_holders(profile, n)
    shown = [f"{c + 1}: {share_text(share)}" for c, share in enumerate(shares[:_MOST_SHOWN])]
    if n > _MOST_SHOWN:
        shown.append(f"more: {share_text(float(shares[_MOST_SHOWN:].sum()))}")
    mean = f"{_mean_holders(profile, n):.2f} on average"
    return [f"  holders of a unit    among {n} ranks, {mean}, of the units that are held", "    " + "   ".join(shown)]


def shares_of_holders(profile: Profile, n: int) -> Floats:
    """Return the share, for c = 1..n, of units that exactly c ranks hold among those that any of ``n`` holds; [n]."""
    held = profile.holders(n)[1:]
    total = held.sum()
    return np.asarray(held / total if total else held)


def _mean_holders(profile: Profile, n: int) -> float:
    union = float(profile.union(n))
    return n * profile.density / union if union else 0.0
