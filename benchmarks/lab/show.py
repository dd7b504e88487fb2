"""A report as a table in Markdown."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.lab.results import Bounds, Row, Spread, over
from benchmarks.lab.settings import Settings
from benchmarks.pages import LEFT, RIGHT, table

BYTES = ("counted MB", "sent MB", "/ B2", "received MB", "/ B1")
NO_BOUNDS = Bounds(0, 0, None)


def described(settings: Settings) -> str:
    load = settings.workload
    drawn = f"Zipf {load.zipf:g}" if load.zipf else load.indices or "drawn evenly"
    order = ", permuted" if load.permuted else ""
    tensor = f"{load.kind}: {load.units:,} x {load.width}, {load.density:.3g} held by a rank, {drawn}{order}"
    return f"{settings.ranks} ranks, {settings.network()}; {tensor}; seed {settings.seed}"


def shown(title: str, rows: Mapping[str, Row], reference: str, about: str, by: Bounds | None = None) -> str:
    """Return a row a way to sum or to train, the fastest first, between ``title`` and what its columns are."""
    ordered = sorted(rows.items(), key=lambda item: item[1].seconds.median)
    found = table_of_rows([(label(name), row, row.ratio) for name, row in ordered], label(reference), by)
    told = (
        f"MB of the busiest rank: counted as sent by the scheme; sent and received by the interface, TCP's headers "
        f"included, or on loopback by the scheme. Bound: B2 / rate. Over: time in the same round. Wire, cpu: shares of "
        f"the fullest link and of all cores{about}."
    )
    return f"{title}\n\n{found}\n\n{told}"


def table_of_rows(rows: Iterable[tuple[str, Row, Spread]], base: str, by: Bounds | None) -> str:
    """Return a row for each name, with ratios to the times of ``base``, without empty columns."""
    heads = ("", *BYTES, "ms", "quartiles", "/ bound", f"over `{base}`", "quartiles", "wire", "cpu")
    shown = [heads, *((name, *cells(row, ratio, by or NO_BOUNDS)) for name, row, ratio in rows)]
    if by:
        seconds = f"{by.seconds * 1e3:.1f}" if by.seconds else ""
        bound = ("bounds", "", megabytes(by.bandwidth_bytes), "", megabytes(by.receive_bytes), "", seconds)
        shown.insert(1, (*bound, *[""] * (len(heads) - len(bound))))
    kept = [k for k in range(len(heads)) if any(row[k] for row in shown[1:])]
    shown = [tuple(row[k] for k in kept) for row in shown]
    return table(shown[0], (LEFT, *[RIGHT] * (len(kept) - 1)), shown[1:])


def cells(row: Row, ratio: Spread, by: Bounds) -> tuple[str, ...]:
    """Return the columns of a way whose times are ``ratio`` of those it is compared with."""
    above = over(row, by)
    return (
        megabytes(row.counted_sent),
        megabytes(row.sent),
        times(above["bandwidth"]),
        megabytes(row.received),
        times(above["receive"]),
        f"{row.seconds.median * 1e3:.1f}",
        quartiles(row.seconds, 1e3, 1),
        times(above["time"]),
        times(ratio.median),
        quartiles(ratio, 1, 2),
        times(row.wire),
        times(row.processor),
    )


def label(peer: str) -> str:
    """Return the name in a table: a scheme from a file goes by the name of the file."""
    return Path(peer).stem if peer.endswith(".zen") else peer


def megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.3f}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def quartiles(of: Spread, factor: float, places: int) -> str:
    return f"{of.low * factor:.{places}f}-{of.high * factor:.{places}f}"
