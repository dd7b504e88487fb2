"""Trains a language model on loopback, then between hosts on a slow network, and compares ways to sum its gradients.

    python -m benchmarks.lab.demo --ranks 4 --rate 100mbit

DDP's own sparse all-reduce, zenc's scheme auto and DDP with dense gradients train side by side, in turns, from equal
weights and on equal batches. The hosts are network namespaces of this machine, whose links are shaped to the rate. That
takes no root, but iproute2, and a kernel that lets users make namespaces. Where it can't be, the demonstration says
why. Nothing but these namespaces is changed, and nothing of them is left.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lab.launch import Others
from benchmarks.lab.options import carry_out
from benchmarks.lab.results import Row
from benchmarks.lab.settings import NO_SYNC, LabError
from benchmarks.lab.show import megabytes
from benchmarks.lab.training.__main__ import run
from benchmarks.lab.training.report import Report, Training
from benchmarks.pages import LEFT, RIGHT, new_parser, rounded, save_json, table
from examples.language_model import corpus
from examples.language_model.model import Sizes
from zenc.lab.cluster import bits_per_second, why_not

BASE = "ddp-sparse"
LIMIT = 600.0
"""Seconds for each of the two trainings at most."""


def parser() -> argparse.ArgumentParser:
    made = new_parser(__doc__, "benchmarks.lab.demo")
    made.add_argument("--ranks", type=int, default=4, metavar="N", help="hosts, and processes on loopback (4)")
    made.add_argument("--rate", default="100mbit", help="of every link, each way, as tc takes it (100mbit)")
    made.add_argument("--steps", type=int, default=40, metavar="N", help="of each network that are timed (40)")
    made.add_argument("--scheme", default="auto", help="what zenc sums by: a name or a .zen file (auto)")
    made.add_argument("--network", choices=("both", "loopback"), default="both", help="loopback: without slow hosts")
    made.add_argument("--json", type=Path, metavar="FILE", help="what was measured")
    return made


def demonstrated(options: argparse.Namespace) -> str:
    """Return the report to print; raises LabError where a training fails, or losses are not equal."""
    if min(options.ranks, options.steps) < 1:
        raise LabError("--ranks and --steps are 1 or more")
    rate = rate_in_words(options.rate)  # which also says what is no rate
    missing = "--network loopback was asked for" if options.network == "loopback" else why_not()
    say(f"one model in {options.ranks} processes, trained side by side under DDP and under DDP with zenc.")
    say("About two minutes, and one more where kernels have to be compiled first. Reading Python's library as text ...")
    text = corpus.read()
    training = training_of(options, Sizes(vocabulary=text.vocabulary))
    others = Others()
    say(f"1 of 2: on one machine, {options.steps} steps: DDP over loopback, zenc through shared memory")
    found = [run(training, LIMIT, text, shared_memory=True)]
    if not missing:
        say(f"2 of 2: {options.ranks} hosts on links of {rate} each, as network namespaces, {options.steps} steps")
        found.append(run(replace(training, rate=options.rate), LIMIT, text))
    share = others.share()
    save_json(options.json, summary(found, share))
    parts = ["", comparison(found), "", words(found, share)]
    if missing:
        parts += ["", f"No slow network here: it takes {missing}. `zenc advise --help` says how to predict one."]
    return "\n".join(parts)


def training_of(options: argparse.Namespace, sizes: Sizes) -> Training:
    peers = (options.scheme, BASE, "ddp-dense", NO_SYNC)
    return Training(options.ranks, "", 70_000, "2mb", sizes, peers, BASE, options.steps, 2, 2, 1)


def say(what: str) -> None:
    print(f"demo: {what}", file=sys.stderr)


BUSY = 0.05
"""Share of the cores that other programs may use before the words say so."""
UNITS = (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")
NAMES = {"ddp-dense": "DDP, dense gradients", "ddp-sparse": "DDP, sparse gradients", NO_SYNC: "nothing (the bound)"}


def rate_in_words(rate: str) -> str:
    bits = bits_per_second(rate)
    factor, unit = next(each for each in UNITS if bits >= each[0])
    return f"{bits / factor:g} {unit}"


def network_of(report: Report) -> str:
    return rate_in_words(report.settings.rate) if report.settings.rate else "one machine"


def zenc_of(report: Report) -> str:
    return next(name for name in report.settings.peers if name not in NAMES)


def comparison(found: Sequence[Report]) -> str:
    """Return a table with a row for each way to sum, and two columns for each network."""
    networks = (head for report in found for head in (f"{network_of(report)}: ms", "speed"))
    heads = ["gradients are summed by", "MB sent", *networks]
    zenc, rows = zenc_of(found[0]), []
    for name in ("ddp-dense", "ddp-sparse", zenc, NO_SYNC):
        cells = [cell for report in found for cell in (milliseconds(report, name), f"{speed(report.rows[name]):.2f}")]
        rows.append((NAMES.get(name, f"zenc, {zenc}"), megabytes(found[-1].rows[name].sent), *cells))
    title = f"A training step among {found[0].settings.ranks} ranks:"
    return f"{title}\n\n{table(heads, [LEFT, *[RIGHT] * (len(heads) - 1)], rows)}"


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


if __name__ == "__main__":
    carry_out(lambda: demonstrated(parser().parse_args()))
