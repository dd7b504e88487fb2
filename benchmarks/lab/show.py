"""A report as a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from benchmarks.lab.results import Bounds, Report, Row, Spread, over
from benchmarks.lab.settings import Settings

BYTES = ("counted", "sent", "/ B2", "received", "/ B1")
TIMES = ("ms", "quartiles", "/ bound", "ratio", "quartiles", "wire", "cpu")


def described(settings: Settings) -> str:
    """Return the contents of a measurement, in a line or two."""
    load = settings.workload
    drawn = f"Zipf {load.zipf:g}" if load.zipf else load.indices or "drawn evenly"
    order = ", permuted" if load.permuted else ""
    tensor = f"{load.kind}: {load.units:,} x {load.width}, {load.density:.3g} held by a rank, {drawn}{order}"
    return f"{settings.ranks} ranks, {settings.network()}; {tensor}; seed {settings.seed}"


def table(report: Report) -> Table:
    """Return a row a peer and one for the bounds: bytes first, then time, and the use of wire and processors."""
    made = Table(title=described(report.settings), caption=caption(report))
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
    above, took = over(row, by), times_of(row, ratio)
    return [
        megabytes(row.counted_sent),
        megabytes(row.sent),
        times(above["bandwidth"]),
        megabytes(row.received),
        times(above["receive"]),
        *took[:2],
        times(above["time"]),
        *took[2:],
    ]


def lanes(title: str, reference: str, rows: Mapping[str, Row], about: str) -> Table:
    """Return a row a way to sum or to train, the fastest first; ``about`` ends the caption."""
    caption = (
        f"MB of the busiest rank: counted as sent by the scheme; sent and received by the interface. Ratio: time over "
        f"{reference} in the same round. Wire, cpu: shares of the fullest link and of all cores; {about}"
    )
    made = Table(title=title, caption=caption)
    made.add_column("")
    for name in ("counted", "sent", "received", *TIMES[:2], *TIMES[3:]):
        made.add_column(name, justify="right")
    for name, row in sorted(rows.items(), key=lambda item: item[1].seconds.median):
        sent = (megabytes(each) for each in (row.counted_sent, row.interface_sent, row.interface_received))
        made.add_row(label(name), *sent, *times_of(row, row.ratio))
    return made


def times_of(row: Row, ratio: Spread) -> list[str]:
    """Return ms and ratio, each with its quartiles, and the use of wire and processors."""
    return [
        f"{row.seconds.median * 1e3:.1f}",
        quartiles(row.seconds, 1e3, 1),
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
