"""Averages of dense gradients compared on a slow network that this machine plays: DDP's own ways, and zenc's schemes.

    python -m benchmarks.lab.dense --ranks 4 --rate 100mbit --schemes topk_a2a one_bit
    python -m benchmarks.lab.dense --characters --ranks 4 --schemes topk_a2a --peers torch-dense no-sync

A call is the backward pass of a model of one large layer under DDP; with --tensors, asynchronous averages of so many
pieces of that gradient, as of the buckets of a large model; or, with --characters, a training step of the character
model of ``benchmarks.convergence``. Network, bytes and times are as in ``python -m benchmarks.lab``.
"""

import argparse
from dataclasses import asdict
from typing import Any

from benchmarks.convergence.characters import SIZES
from benchmarks.lab.dense.peers import CHARACTERS
from benchmarks.lab.dense.settings import FP16, POWERSGD, TORCH, Backwards, CharacterSteps, Layer
from benchmarks.lab.launch import launch
from benchmarks.lab.options import add_turns, carry_out, new_parser, run_of
from benchmarks.lab.results import Records, Row, rows_of, samples_of
from benchmarks.lab.settings import NO_SYNC, LabError
from benchmarks.lab.show import shown
from benchmarks.lab.training.report import means
from benchmarks.pages import save_json

SCHEMES = ("topk_a2a",)


def measured(options: argparse.Namespace) -> str:
    settings = settings_of(options)
    words = [CHARACTERS] if isinstance(settings, CharacterSteps) else []
    records = launch(settings, options.limit, ("benchmarks.lab.dense.peers", *words))
    rows, found = told(settings, records)
    save_json(options.json, found)
    return shown(settings.title, rows, settings.reference, "")


def told(settings: Backwards | CharacterSteps, records: Records) -> tuple[dict[str, Row], dict[str, Any]]:
    rows = rows_of(settings, records)
    found = {
        "title": settings.title,
        "settings": settings.to_json(),
        "machine": records[0]["machine"],
        "peers": {name: asdict(row) for name, row in rows.items()},
        "samples": samples_of(settings, records),
    }
    if isinstance(settings, CharacterSteps):
        found["losses"] = {name: means([record["losses"][name] for record in records]) for name in settings.peers}
    return rows, found


def parser() -> argparse.ArgumentParser:
    made = new_parser("benchmarks.lab.dense", __doc__)
    made.add_argument("--schemes", nargs="*", default=list(SCHEMES), metavar="SCHEME", help="names or .zen files")
    made.add_argument(
        "--peers", nargs="*", choices=(*TORCH, NO_SYNC), default=list(TORCH), metavar="PEER", help=" ".join(TORCH)
    )
    made.add_argument("--characters", action="store_true", help="train the character model, and take no-sync too")
    made.add_argument("--rows", type=int, default=Layer().rows, metavar="N", help=f"of the layer ({Layer().rows})")
    made.add_argument("--columns", type=int, default=Layer().columns, metavar="N", help=f"({Layer().columns})")
    made.add_argument("--tensors", type=int, default=1, metavar="N", help="into which its rows are cut, each a call")
    add_turns(made, dense_rounds=3)
    return made


def settings_of(options: argparse.Namespace) -> Backwards | CharacterSteps:
    """Return the settings in ``options``; raises LabError for impossible ones."""
    run: dict[str, Any] = run_of(options, tuple(dict.fromkeys([*options.peers, *options.schemes])))
    if options.characters:
        return CharacterSteps(workload=SIZES, **run)
    if NO_SYNC in options.peers:
        raise LabError(f"{NO_SYNC} goes with --characters: without a sum a backward pass of one layer is nothing")
    if options.tensors < 1 or options.rows % options.tensors:
        raise LabError(f"{options.rows} rows can't be cut into --tensors {options.tensors} of equal size")
    if options.tensors > 1 and (hooks := set(options.peers) & {FP16, POWERSGD}):
        raise LabError(f"{' and '.join(sorted(hooks))} take buckets of DDP, and --tensors have none")
    return Backwards(workload=Layer(options.rows, options.columns, options.tensors), **run)


if __name__ == "__main__":
    carry_out(lambda: measured(parser().parse_args()))
