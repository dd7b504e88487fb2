"""The cost of a profiler in calls of a scheme: CPU time of a rank, so that other work on the machine does not count.

    python -m benchmarks.profiler [--ranks 2] [--calls 200]

Of an embedding's sparse gradient and of a dense one of the same rows, each with 2 % of 200,000 rows of 64 values: a
call by schemes/balanced.zen without a profiler, and what a sampled call adds, of which the marks are made by the thread
that trains, and the rest is the small all-reduce behind the call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import fmean

import torch

import zenc
from benchmarks.one_machine import spawned
from benchmarks.pages import new_parser
from zenc.torch.hook import ZencState

ROWS, WIDTH, HELD = 200_000, 64, 4000


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    samples, _ = spawned(options.ranks, options.calls, 1, tasks_of)
    took = {name: fmean(processor for *_, processor in found) for name, found in samples[0].items()}
    for kind in ("sparse", "dense"):
        alone, sampled, marks = (took[f"{kind} {what}"] * 1e6 for what in ("call", "sampled", "marks"))
        print(f"{kind:<8} a call {alone:,.0f} us; sampled +{sampled - alone:,.0f} us, of which marks {marks:,.0f} us")


def tasks_of(rank: int, size: int) -> dict[str, Callable[[], object]]:
    """Return the calls of a rank, with and without a profiler, and the marks alone, by name."""
    ids = torch.randint(ROWS, (1, HELD), generator=torch.Generator().manual_seed(rank))
    sparse = torch.sparse_coo_tensor(ids, torch.ones(HELD, WIDTH), (ROWS, WIDTH), check_invariants=False)
    collective, tasks = zenc.load("balanced"), dict[str, Callable[[], object]]()
    for kind, gradient in (("sparse", sparse), ("dense", sparse.to_dense())):
        for what, state in (
            ("call", ZencState(collective)),
            ("sampled", ZencState(collective, profiler=zenc.Profiler(every=1))),
        ):
            tasks[f"{kind} {what}"] = partial(average, state, gradient)
        tasks[f"{kind} marks"] = partial(zenc.Profiler(every=1).marks, "table", gradient)
    return tasks


def average(state: ZencState, gradient: torch.Tensor) -> torch.Tensor:
    return state.average(gradient.clone(), "table", not gradient.is_sparse).wait()


if __name__ == "__main__":
    main()
