"""Advice in words: the verdict, a table of ways, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from zenc.format_units import seconds_text, size_text
from zenc.simulator.training.advice import ZENC, Advice, Way

_HEAD = ("way", "synchronisation", "of zenc's", "step", "as fast", "busiest sends", "sums tables by")


def text(of: Advice) -> str:
    """The advice as text for a terminal: the verdict, the table of ways, what to do."""
    return "\n".join([of.verdict, "", *_about(of), *_table(of), "", *_what_to_do(of), *of.notes])


def _about(of: Advice) -> Iterator[str]:
    tables = sum(table.profile.units * table.profile.unit_bytes for table in of.load.tables)
    rest = f", and {size_text(of.load.rest)} of other gradients" if of.load.rest else ""
    count = len(of.load.tables)
    yield f"{of.size} ranks on {of.where}; {count} table{'s' * (count != 1)} of {size_text(tables)}{rest}"
    if seen := of.load.observed:
        yield (
            f"observed on {seen.ranks} ranks by {seen.backend}: {seconds_text(seen.seconds_step)} a step, "
            f"{seen.exposed_share:.0%} of it waiting for synchronisation"
        )


def _table(of: Advice) -> Iterator[str]:
    rows = [_HEAD, *(_row(of, way) for way in of.ways)]
    kept = [i for i in range(len(_HEAD)) if any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    for row in rows:
        cells = [f"{row[i]:{'<' if i in (0, len(_HEAD) - 1) else '>'}{widths[i]}}" for i in kept]
        yield "  ".join(cells).rstrip()


def _row(of: Advice, way: Way) -> tuple[str, ...]:
    if way.missing:
        return (way.name, "-", "", "", "", "", way.missing)
    step, speedup, zenc = of.step(way), of.speedup(way), of.way(ZENC).seconds
    return (
        way.name,
        seconds_text(way.seconds),
        f"{way.seconds / zenc:.3g}" if zenc else "",
        "" if step is None else seconds_text(step),
        "" if speedup is None else f"{speedup:.3g}",
        size_text(way.sent),
        ", ".join(dict.fromkeys(scheme for _, scheme in way.schemes)) if way.name == ZENC else "",
    )


def _what_to_do(of: Advice) -> Iterator[str]:
    if of.answer == "no":
        return
    dense = [table.profile.name for table in of.load.tables if table.is_dense]
    more = f', "auto", dense={dense!r}' if dense else ', "auto"'
    yield f"try it: zenc.attach(ddp_model{more})"
    if of.load.computing is None:
        yield "what whole steps gain: give --computing, or the profile of zenc.attach(ddp_model, dry_run=True)"
