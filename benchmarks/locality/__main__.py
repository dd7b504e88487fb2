"""Writes the sparsity profile of 788 production tables of recommendation models, in one batch of 131,072 samples.

    python -m benchmarks.locality [--samples 2048] [--width 64] [-o benchmarks/lab/models/production_tables.json]

The published statistics say which share of the rows is looked up more than a and up to b times in the batch, and which
share of all look-ups these rows have. From that, of a rank that takes ``samples`` of the 131,072:

    hits h of a row    look-ups of its class over rows of its class; where the published share of the rows is rounded
                       to less than 0.01, the geometric middle of a and b instead, and the share of rows that follows
    probability        1 - (1 - samples / 131,072)^h: one of h look-ups, each in a sample at random, is the rank's
    units              distinct rows a table, on average: rows that the batch has not looked up are not among them

So n ranks hold what n * samples of the batch look up, and the profile is right up to the whole batch; beyond it rows
that were never seen are missing. Which rows are frequent is not published: units are spread evenly. Nor is the width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pages import ROOT, json_of, new_parser
from zenc.gradients.profile import Profile
from zenc.gradients.profile_io import dump_profiles

STATISTICS = Path(__file__).parent / "statistics.json"
SHIPPED = ROOT / "benchmarks" / "lab" / "models" / "production_tables.json"
NAME = "production tables"
SAMPLES, WIDTH = 2048, 64
ROUNDED = 0.01
"""The least published share that is divided by: with three decimals, smaller ones are too coarse."""
MOST_HITS = 32_768
"""The hits at which the published classes end. Rows with more are assumed to have twice as many.

All ranks are assumed to hold those rows.
"""


def classes(statistics: dict[str, Any]) -> list[tuple[float, float]]:
    """Return pairs: hits in the batch, and the number of rows in all tables that have these."""
    indices, rows = statistics["indices"], statistics["distinct_rows"]
    above = (MOST_HITS, 4 * MOST_HITS, 0.0, statistics["indices_of_rows_above_32768_hits"])
    found = []
    for least, most, of_rows, of_indices in (*statistics["hits"], above):
        hits = of_indices * indices / (of_rows * rows) if of_rows >= ROUNDED else (max(1, least) * most) ** 0.5
        found.append((hits, of_indices * indices / hits))
    return found


def profile_of(statistics: dict[str, Any], samples: int = SAMPLES, width: int = WIDTH) -> Profile:
    """Return the profile of an average table of rows of ``width`` float32, for ranks with ``samples`` of the batch."""
    found, taken = classes(statistics), samples / statistics["samples"]
    total = sum(rows for _, rows in found)
    range_ = tuple((1 - (1 - taken) ** hits, rows / total) for hits, rows in found)
    return Profile(NAME, round(statistics["distinct_rows"] / statistics["tables"]), width, "f32", None, (range_,))


def shipped() -> Profile:
    """Return the profile by the published statistics, with the sizes that are shipped."""
    return profile_of(json_of(STATISTICS))


def main() -> None:
    parser = new_parser(__doc__, "benchmarks.locality")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"of the batch that a rank takes ({SAMPLES})")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of a row ({WIDTH})")
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED, metavar="FILE")
    options = parser.parse_args()
    statistics = json_of(STATISTICS)
    if not 1 <= options.samples <= statistics["samples"]:
        raise SystemExit(f"--samples are 1 to {statistics['samples']:,}")
    options.output.write_text(dump_profiles([profile_of(statistics, options.samples, options.width)]), encoding="utf-8")
    print(options.output)


if __name__ == "__main__":
    main()
