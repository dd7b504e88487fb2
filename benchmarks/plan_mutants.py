"""Damage small plans of other synthesizers at random, and compare zenc's verdicts with those of a brute-force judge.

    python -m benchmarks.plan_mutants --mutants 10000 --json benchmarks/results/plan_mutants.json

The judges, ``zenc.referee`` and ``tests/support/foreign.py``, share nothing. Of ten mutants nine are in MSCCL's
XML, one in TE-CCL's JSON. Exit status 1 means that they disagree about one, which is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support import foreign
from zenc.errors import ZencError
from zenc.referee.open import check_plan


def verdict(text: str, path: Path) -> str:
    """Return the id of zenc's first error about the plan ``text``, or ``proved``; the file ``path`` is written."""
    path.write_text(text, encoding="utf-8")
    try:
        check_plan(path)
    except ZencError as error:
        return next(one.id for one in error.diagnostics if one.severity == "error")
    return "proved"


def mutant(number: int, draw: random.Random) -> tuple[str, bool]:
    """Return a damaged plan, and whether the brute-force judge finds it right."""
    if number % 10 == 9:
        data = foreign.damaged_flows(foreign.teccl_ring(4), draw)
        return foreign.written(data), foreign.flows_are_right(data)
    bases = foreign.plans()
    text = foreign.damaged(bases[number % len(bases)], draw)
    return text, foreign.is_right(text, draw)


def compared(mutants: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how many mutants got each verdict of zenc, and the texts of those about which the judges disagree."""
    draw, found, disagreed = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(mutants):
            text, right = mutant(number, draw)
            told = verdict(text, Path(folder) / "plan")
            found[told] += 1
            if (told == "proved") != right:
                disagreed.append(f"<!-- zenc: {told}; by brute force: {'right' if right else 'wrong'} -->\n{text}")
    return found, disagreed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found, disagreed = compared(options.mutants, options.seed)
    for text in disagreed:
        print(text)
    for id, number in found.most_common():
        print(f"{number:>8,}  {id}")
    print(f"{options.mutants:,} mutants, {len(disagreed)} disagreements")
    if options.json:
        told = {
            "mutants": options.mutants,
            "seed": options.seed,
            "disagreements": len(disagreed),
            "verdicts": dict(found.most_common()),
        }
        Path(options.json).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 1 if disagreed else 0


if __name__ == "__main__":
    sys.exit(main())
