"""The table of the demonstration, and in words what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.lab.results import Row
from benchmarks.lab.settings import Settings
from benchmarks.lab.show import megabytes
from benchmarks.lab.suite.results import rounded
from benchmarks.lab.training.report import Report
from benchmarks.lab.training.settings import NO_SYNC
from benchmarks.lab.workloads import TRACE, trace_of, units_of
from benchmarks.predicted import CORES, lab, plan_of
from zenc.gradients.profile_fit import from_gradients
from zenc.lab.cluster import bits_per_second
from zenc.simulator.predict import predict

BUSY = 0.05
"""Share of the cores that other programs may use before the words say so."""
UNITS = (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")
NAMES = {"ddp-dense": "DDP, dense gradients", "ddp-sparse": "DDP, sparse gradients", NO_SYNC: "nothing (the bound)"}


def rate_in_words(rate: str) -> str:
    """Return ``100mbit`` as ``100 Mbit/s``."""
    bits = bits_per_second(rate)
    factor, unit = next(each for each in UNITS if bits >= each[0])
    return f"{bits / factor:g} {unit}"


def network_of(report: Report) -> str:
    return rate_in_words(report.settings.rate) if report.settings.rate else "one machine"


def zenc_of(report: Report) -> str:
    """Return the lane that zenc sums."""
    return next(name for name in report.settings.peers if name not in NAMES)


def comparison(found: Sequence[Report]) -> Table:
    """Return a table with a row for each way to sum, and two columns for each network."""
    first, last = found[0], found[-1]
    made = Table(title=f"a training step among {first.settings.ranks} ranks", title_justify="left")
    made.add_column("gradients are summed by")
    made.add_column("MB sent", justify="right")
    for report in found:
        made.add_column(f"{network_of(report)}: ms", justify="right")
        made.add_column("speed", justify="right")
    zenc = zenc_of(first)
    for name in ("ddp-dense", "ddp-sparse", zenc, NO_SYNC):
        cells = [cell for report in found for cell in (milliseconds(report, name), f"{speed(report.rows[name]):.2f}")]
        label = NAMES.get(name, f"zenc, {zenc}")
        made.add_row(label, sent(last.rows[name]), *cells, style="bold" if name == zenc else None)
    return made


def sent(row: Row) -> str:
    """Return the bytes sent by the interface, where there is a network; otherwise zenc's count for its tables."""
    return megabytes(row.sent)


def milliseconds(report: Report, name: str) -> str:
    return f"{report.rows[name].seconds.median * 1e3:.0f}"


def speed(row: Row) -> float:
    """Return the steps in the time of one under DDP's sparse all-reduce, by the median of paired steps."""
    return 1 / row.ratio.median


def words(found: Sequence[Report], others: float) -> str:
    """Return the results of the table in words, and how far it may be trusted."""
    lines = [
        "MB sent: by the busiest rank, in a step. ms: medians. speed: steps in the time of one by DDP, sparse.",
        *(sentence(report) for report in found),
        losses(found),
        *(chosen(report) for report in found if report.chosen.get(zenc_of(report))),
    ]
    if others > BUSY:
        lines.append(
            f"Other programs used {others:.0%} of the cores: times say little. Run it again on an idle machine."
        )
    return "\n".join(lines)


def summary(found: Sequence[Report], others: float) -> dict[str, Any]:
    """Return all but the samples, for JSON."""
    networks = {network_of(report): report.to_json() for report in found}
    for of in networks.values():
        del of["samples"]
    return {"others": rounded(others), "networks": rounded(networks)}


def sentence(report: Report) -> str:
    """Return a sentence on zenc beside DDP on one network."""
    zenc, base = report.rows[zenc_of(report)], report.rows[report.settings.reference]
    low, high = 1 / zenc.ratio.high, 1 / zenc.ratio.low
    where = (
        f"Between hosts on {network_of(report)}"
        if report.settings.rate
        else "On one machine, where DDP takes loopback,"
    )
    way = "" if report.settings.rate else ", through shared memory"
    said = f"{where} a step is {speed(zenc):.2f} times as fast with zenc{way} (quartiles {low:.2f} to {high:.2f})"
    if report.settings.rate and zenc.sent and base.sent:
        said += f", with {zenc.sent / base.sent:.2f} of the bytes"
    return f"{said}."


def losses(found: Sequence[Report]) -> str:
    """Return the losses in words; those that are not equal have raised an error before."""
    apart = max(report.apart for report in found)
    of = found[-1].losses[zenc_of(found[-1])]
    return (
        f"Losses are equal in every step, but for rounding ({apart:.0e} of the loss at most). "
        f"In {len(of)} steps they fell from {of[0]:.2f} to {of[-1]:.2f}."
    )


def chosen(report: Report) -> str:
    by = ", ".join(f"{scheme} for {table}" for table, scheme in sorted(report.chosen[zenc_of(report)].items()))
    return f"Chosen on {network_of(report)}: {by}."


SCHEMES = {
    "holders": "zenc, holders",
    "agsparse": "all-gather, as DDP does with sparse gradients",
    "dense_ring": "ring, as DDP does with dense gradients",
}


def prediction(ranks: int, rate: str) -> str:
    """Return seconds of one sum of the recorded rows, on links of ``rate``, by the cost model; nothing is measured."""
    settings = Settings(ranks, rate, 70_000, "2mb", trace_of(TRACE, ranks, False), (), "", 1, 1, 0, 1)
    profile, calibration = from_gradients(units_of(settings.workload, ranks, 1)), lab(settings, CORES)
    took = {name: predict(plan_of(name), ranks, profile, None, calibration).seconds for name in SCHEMES}
    lines = [f"  {SCHEMES[name]:46} {seconds * 1e3:7.1f} ms" for name, seconds in took.items()]
    title = f"Predicted, not measured: a sum of the model's first table among {ranks} ranks on {rate_in_words(rate)},"
    return "\n".join([title, "by the cost model as fitted to the lab, for the rows of a recorded step:", *lines])
