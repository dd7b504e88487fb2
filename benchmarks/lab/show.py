"""A report as a table."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from benchmarks.lab.results import Bounds, Report, Row, Spread, over
from benchmarks.lab.settings import Settings

BYTES = ("counted", "sent", "/ B2", "received", "/ B1")
TIMES = ("ms", "quartiles", "/ bound", "ratio", "quartiles", "wire", "cpu")


def title(report: Report) -> str:
    """Return the contents of the measurement, in a line or two."""
    return described(report.settings)


def described(settings: Settings) -> str:
    load = settings.workload
    drawn = f"Zipf {load.zipf:g}" if load.zipf else load.indices or "drawn evenly"
    order = ", permuted" if load.permuted else ""
    tensor = f"{load.kind}: {load.units:,} x {load.width}, {load.density:.3g} held by a rank, {drawn}{order}"
    return f"{settings.ranks} ranks, {settings.network()}; {tensor}; seed {settings.seed}"


def table(report: Report) -> Table:
    """Return a row a peer and one for the bounds: bytes first, then time, and the use of wire and processors."""
    made = Table(title=title(report), caption=caption(report))
    made.add_column("peer")
    for name in (*BYTES, *TIMES):
        made.add_column(name, justify="right")
    by = report.bounds
    bound_ms = f"{by.seconds * 1e3:.1f}" if by.seconds else ""
    made.add_row("bounds", "", megabytes(by.bandwidth_bytes), "", megabytes(by.receive_bytes), "", bound_ms)
    for name, row in sorted(report.rows.items(), key=lambda item: item[1].sent or 0):
        made.add_row(label(name), *cells(row, row.ratio, report.bounds))
    return made


def cells(row: Row, ratio: Spread, by: Bounds) -> list[str]:
    """Return the columns BYTES and TIMES of a peer, whose times are ``ratio`` of those it is compared with."""
    above = over(row, by)
    return [
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
    ]


def caption(report: Report) -> str:
    bytes_ = "the interface's count, TCP's headers included" if report.settings.rate else "the scheme's own count"
    return (
        f"MB of the busiest rank: counted by the scheme as sent; sent and received by {bytes_}. Bound: B2 / rate. "
        f"Ratio: time over {report.settings.reference} in the same round. Wire, cpu: shares of the fullest link and of "
        f"all cores."
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
