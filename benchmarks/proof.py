"""Seconds that the proof of every shipped scheme takes, by the number of ranks, the program's start included.

python benchmarks/proof.py [--sizes 64,1024] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from zenc.scheme.library import shipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,1024", help="numbers of ranks, with commas between (default: 64,1024)")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    rows = {entry["name"]: {size: seconds(str(entry["name"]), size) for size in sizes} for entry in shipped()}
    print(f"{'zenc check, seconds':32}" + "".join(f"{size:>8} ranks" for size in sizes))
    for name, row in rows.items():
        print(f"{name:32}" + "".join(f"{row[size]:14.2f}" for size in sizes))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


def seconds(scheme: str, size: int) -> float:
    """Return the wall time of ``zenc check SCHEME --ranks SIZE`` in a process of its own."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "zenc", "check", scheme, "--ranks", str(size)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
