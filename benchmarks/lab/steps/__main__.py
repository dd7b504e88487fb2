"""Training steps by strategies on a slow network that this machine plays: the tuned one, and those written by hand.

    python -m benchmarks.lab.steps --ranks 4 --tuned tuned.zen

The model is the character model of ``benchmarks.convergence``. A dry run on the lab's hosts makes its profile, for
which a strategy is searched; then steps by all strategies take turns. Network, bytes and times are as in
``python -m benchmarks.lab``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from rich.table import Table

from benchmarks.convergence.characters import SIZES
from benchmarks.lab.dense.__main__ import table
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.dense.worker import CHARACTERS
from benchmarks.lab.launch import launch
from benchmarks.lab.options import add_turns, carry_out, new_parser, run_of, write
from benchmarks.lab.results import rows_of, samples_of
from benchmarks.lab.settings import ROOT
from benchmarks.lab.steps.suite import BY_DDP, HAND_WRITTEN
from benchmarks.lab.steps.tuned import predicted, profile_of, tuned_text
from benchmarks.lab.training.report import means
from benchmarks.lab.training.settings import NO_SYNC


def main() -> None:
    options = parser().parse_args()
    carry_out(lambda: measured(options))


def parser() -> argparse.ArgumentParser:
    made = new_parser("benchmarks.lab.steps", __doc__)
    made.add_argument("--tuned", required=True, metavar="FILE.zen", help="where the strategy goes that is found")
    add_turns(made, dense_rounds=1)
    return made


def measured(options: argparse.Namespace) -> Table:
    peers = (NO_SYNC, BY_DDP, *HAND_WRITTEN, options.tuned)
    settings = CharacterSteps(workload=SIZES, **{**run_of(options, peers), "reference": options.tuned})
    profile = profile_of(replace(settings, peers=(), reference=""), options.limit)
    Path(ROOT, options.tuned).parent.mkdir(parents=True, exist_ok=True)
    Path(ROOT, options.tuned).write_text(tuned_text(settings, profile), encoding="utf-8")
    records = launch(settings, options.limit, ("benchmarks.lab.dense.worker", CHARACTERS))
    rows = rows_of(settings, records)
    strategies = (*HAND_WRITTEN, options.tuned)
    found = {
        "title": settings.title,
        "settings": settings.to_json(),
        "machine": records[0]["machine"],
        "peers": {name: asdict(row) for name, row in rows.items()},
        "samples": samples_of(settings, records),
        "losses": {name: means([record["losses"][name] for record in records]) for name in settings.peers},
        "predicted": predicted(settings, profile, strategies, rows[NO_SYNC].seconds.median),
    }
    write(options.json, json.dumps(found, indent=1) + "\n")
    return table(settings, rows)


if __name__ == "__main__":
    main()
