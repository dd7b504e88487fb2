"""``python -m tests.untrusted``: costs of hostile files of a megabyte."""

import argparse
import json
from dataclasses import asdict

from tests.untrusted.costs import KEPT_AT, PAGE, cost_of, with_table
from tests.untrusted.megabytes import TRICKS

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.untrusted", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(TRICKS), default=list(TRICKS), metavar="TRICK")
    parser.add_argument(
        "--write", action="store_true", help="keep what was found, and write the page about security anew"
    )
    given = parser.parse_args()
    found = {}
    for trick in given.only:
        cost = min((cost_of(trick) for _ in range(ROUNDS)), key=lambda each: each.seconds)  # others run meanwhile
        found[trick] = {"kind": TRICKS[trick].kind, **asdict(cost), "seconds": round(cost.seconds, 2)}
        print(
            f"{trick:28} {cost.bytes:9,} B {cost.seconds:7.2f} s {cost.memory / 1e6:7.1f} MB  {cost.outcome}",
            flush=True,
        )
    if given.write:
        KEPT_AT.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
