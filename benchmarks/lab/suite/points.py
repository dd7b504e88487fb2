"""Points that the suite measures; to add a point, add it here.

    Point = name x what it shows x module x words x seconds x package?

A point is one run of ``benchmarks.lab`` or ``benchmarks.lab.training``, in less than three minutes.
"""

from dataclasses import dataclass
from importlib.util import find_spec

SUMS, TRAINING = "benchmarks.lab", "benchmarks.lab.training"
SCHEMES = ("holders", "balanced", "zen", "sparcml", "agsparse")
"""The schemes at every point, the first one for the ratios of the run."""
LIBRARY = ("hierarchical_centralization", "sparcml_split", "kylix", "sparse_ps", "omnireduce")
"""The schemes at one point only."""
RANGE = "benchmarks/lab/schemes/range.zen"
OURS = ("holders", "balanced", "hierarchical_centralization")
"""Schemes as zenc writes them, the best of which stands for it at a point; all others are written down as published."""
ELEMENTS = ("balanced", "hierarchical_centralization", "holders", "zen", "sparcml", "agsparse")


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a suite. ``words`` follow ``python -m module``; ``seconds``: about its time, with the start.

    ``package``: what has to be installed for it, beside what zenc is developed with.
    """

    name: str
    shows: str
    words: tuple[str, ...]
    seconds: int
    module: str
    package: str = ""

    @property
    def command(self) -> str:
        return " ".join(("python -m", self.module, *self.words))

    def possible(self) -> bool:
        return not self.package or find_spec(self.package) is not None


def point(
    name: str,
    shows: str,
    seconds: int,
    options: str,
    schemes: tuple[str, ...] = SCHEMES,
    peers: tuple[str, ...] = ("torch-coo",),
    module: str = SUMS,
    package: str = "",
) -> Point:
    """Return a point on a shaped network."""
    words = ("--network", "shaped", *options.split(), "--schemes", *schemes, "--peers", *peers)
    return Point(name, shows, words, seconds, module, package)


POINTS = (
    point("rows-2", "rows at 2 %, 2 ranks", 30, "--ranks 2"),
    point("rows-4", "rows at 2 %, 4 ranks", 50, "--ranks 4"),
    point("rows-6", "rows at 3 % of another law, 6 ranks", 90, "--ranks 6 --units 130000 --density 0.03 --zipf 0.9"),
    point("rows-8", "rows at 2 %, 8 ranks", 85, "--ranks 8"),
    point("rows-16", "rows at 2 %, 16 ranks", 165, "--ranks 16 --rounds 11"),
    point("rows-8-10pct", "rows at 10 %, 8 ranks", 150, "--ranks 8 --density 0.1 --rounds 5"),
    point("rows-8-permuted", "rows at 2 % in a random order, 8 ranks", 85, "--ranks 8 --permuted"),
    point("rows-8-queue", "rows at 2 %, 8 ranks, queues of 256 kB", 110, "--ranks 8 --queue 256kb"),
    point("elements-8", "single elements at 1 %, 8 ranks", 75, "--ranks 8 --workload elements", ELEMENTS),
    point("elements-8-5pct", "single elements at 5 %, 8 ranks", 140,
          "--ranks 8 --workload elements --density 0.05 --rounds 9", ELEMENTS),
    point("trace-8", "rows of a real training step, 8 ranks", 35, "--ranks 8 --workload trace"),
    point("trace-16", "rows of a real training step, 16 ranks", 60, "--ranks 16 --workload trace"),
    point("range-8", "ranges of rows in the order of their frequency, 8 ranks", 125, "--ranks 8 --rounds 11",
          (*SCHEMES, RANGE)),
    point("training-8", "steps of training a language model, 8 ranks", 120, "--ranks 8", ("holders", "balanced"),
          ("ddp-sparse", "ddp-dense"), TRAINING),
    point("horovod-8", "rows at 2 %, 8 ranks, and Horovod", 150, "--ranks 8", SCHEMES, ("torch-coo", "horovod-coo"),
          package="horovod"),
    point("library-8", "the library, and the dense tensor in one round, 8 ranks", 140,
          "--ranks 8 --rounds 4 --dense-rounds 1", (*SCHEMES, *LIBRARY), ("torch-coo", "torch-dense")),
)  # fmt: skip
