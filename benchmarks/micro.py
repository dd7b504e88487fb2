"""Every CPU kernel of zenc, and a whole call without its wire, beside memcpy and PyTorch.

    python benchmarks/micro.py                        all of it, some minutes
    python benchmarks/micro.py -k "expand and rows"   what pytest's -k chooses
    python benchmarks/micro.py -k call                the whole calls only
    python benchmarks/micro.py --json micro.json      pytest-benchmark's JSON too, with every statistic

How to read the table. A round runs the memcpy, PyTorch and the kernel one after the other, so that whatever else the
machine does meets all three; a time is the CPU time of the one thread, the least of all rounds and the median.
"/ memcpy" is the kernel's time over that of a memcpy of as many bytes, "torch /" is PyTorch's time over the kernel's:
above 1 the kernel is faster. "cores 2" has a second thread that does the same on other data all the while.

Bytes: values for what moves values (those received for a merge, those written for an expansion), 8 a unit for what
moves ids, the dense tensor for what reads or writes all of it, the bitmap for a rank, 4 a unit for an index. Buffers
are kept, also PyTorch's inputs; PyTorch's results are made anew, as its user has them made, in memory that it has used.
PyTorch's way: index_select of a table (permute), nonzero (mark dense), index_select (place dense), coalesce
(pack, expand to COO), nonzero and index_select (pack dense, a whole call of elements), index_add_ to a cleared part
(merge), index_copy_ to a cleared tensor (expand to dense). A whole call of rows is held against coalesce.
"hashed" is the same under hierarchical hashing (k = 3, r1 = 2.0, r2 = 0.2); its "torch /" is the permutation's kernel,
of the tables that hashing needs once a shape its whole pack.
"nothing" is a tensor without units: what a call of each costs, Python's part included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MICRO = 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-k", metavar="WORDS", default="", help="only the benchmarks that these words choose (pytest -k)"
    )
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each; more find the least time more surely")
    parser.add_argument(
        "--scale", type=int, default=1, help="tensors so many times smaller: a quick look whether all runs"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write pytest-benchmark's JSON here")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        report = chosen.json.absolute() if chosen.json else Path(folder) / "micro.json"
        failed = run(chosen, report)
        if report.exists() and report.stat().st_size:
            show(json.loads(report.read_text(encoding="utf-8"))["benchmarks"])
    return failed


def run(chosen: argparse.Namespace, report: Path) -> int:
    """Run the benchmarks, as pytest's tests; pytest reports their errors."""
    import pytest

    sys.path.insert(0, str(ROOT))
    from benchmarks.kernels.options import ROUNDS, SCALE

    os.environ[ROUNDS], os.environ[SCALE] = str(chosen.rounds), str(chosen.scale)
    wanted = ["-k", chosen.k] if chosen.k else []
    quiet = ["-q", "--no-header", "--no-summary", "--benchmark-quiet", "--timeout=0", "-p", "no:cacheprovider"]
    timing = ["--benchmark-timer=time.thread_time", f"--benchmark-json={report}"]
    return int(pytest.main(["benchmarks/kernels/test_kernels.py", *quiet, *timing, *wanted]))


def show(benchmarks: list[dict[str, Any]]) -> None:
    """Print a line each, by shape."""
    heading = f"{'':24}{'cores':>6}{'us':>10}{'median':>10}{'/ memcpy':>10}{'torch /':>10}"
    shapes = dict.fromkeys(each["extra_info"]["shape"] for each in benchmarks)
    for shape in shapes:
        print(f"\n{shape}\n{heading}")
        for each in benchmarks:
            if each["extra_info"]["shape"] == shape:
                print(line(each))


def line(benchmark: dict[str, Any]) -> str:
    what = benchmark["extra_info"]
    mine = what.get("own") or benchmark["stats"]
    least, median = (mine[key] * MICRO / what["calls"] for key in ("min", "median"))
    copy = f"{mine['min'] / what['memcpy']['min']:10.2f}" if what["memcpy"] and what["bytes"] else f"{'':10}"
    torch = f"{what['torch']['min'] / mine['min']:10.2f}" if what["torch"] else ""
    return f"{what['kernel']:24}{what['cores']:6}{least:10.1f}{median:10.1f}{copy}{torch}"


if __name__ == "__main__":
    sys.exit(main())
