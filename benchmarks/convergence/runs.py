"""Runs of training. Data: to add a run, add it here, and name it in an experiment.

Run        = name x label x scheme x ranks x momentum of the optimizer x what happens half way x seeds
Experiment = name x title x question x runs, the first of which the others are held against
"""

from dataclasses import dataclass
from typing import Literal

STEPS = 800
"""The number of steps of each run. A thousand of all runs at one seed are 13 processor minutes, and all is to take less
than 20 of two."""
SEEDS = (1, 2, 3)
EVERY = 50
"""Steps from one look at held-out text to the next."""
RATE = 0.1
"""The rate of the optimizer, SGD; chosen for the dense run, and left as it is for all others."""
MOMENTUM = 0.9
PLAIN = 1.0
"""The rate without momentum that goes as far in the long run: ``RATE`` over 1 - ``MOMENTUM``."""
EVEN = "communication: point_to_point  aggregation: incremental  partition: parallelism  balance: imbalanced"
RING = "communication: ring  aggregation: incremental  partition: parallelism  balance: imbalanced"


def text_of(schedule: str, *entries: str) -> str:
    return "scheme measured { " + "  ".join((schedule, *entries)) + " }"


def top(density: float, feedback: str = "residual", *more: str) -> str:
    """Return a scheme of the top values of each part, as ``topk_a2a`` is."""
    schedule = EVEN.replace("point_to_point", "point_to_point then ring")
    select = f"select: top_of_parts({density:g})"
    return text_of(schedule, select, f"feedback: {feedback}", *more, "push: coo", "pull: dense")


def coded(code: str, feedback: str) -> str:
    """Return a dense scheme whose values are encoded in both phases."""
    return text_of(EVEN, f"feedback: {feedback}", f"push: dense as {code}", f"pull: dense as {code}")


def sketched(select: str) -> str:
    """Return a dense ring that sums a shorter tensor."""
    return text_of(RING, f"select: {select}", "feedback: residual", "push: dense", "pull: dense")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of training; ``scheme`` is the text of a scheme, or the name of a shipped one.

    ``halfway``: ``restarted`` from a checkpoint, or with residuals ``forgotten``, as a restart without them does.
    """

    name: str
    label: str
    scheme: str
    ranks: int = 4
    rate: float = RATE
    momentum: float = MOMENTUM
    halfway: Literal["", "restarted", "forgotten"] = ""
    seeds: tuple[int, ...] = SEEDS


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question to ``runs`` that share a figure and a table; the others are held against the first."""

    name: str
    title: str
    question: str
    runs: tuple[str, ...]


RUNS = (
    Run("dense", "dense", "dense_ring"),
    Run("top", "top 1 %, residual", top(0.01)),
    Run("top-lost", "top 1 %, rest lost", top(0.01, "none")),
    Run("sign", "sign, residual", coded("sign(2048)", "residual")),
    Run("sign-lost", "sign, rest lost", coded("sign(2048)", "none")),
    Run("dense-plain", "dense", "dense_ring", rate=PLAIN, momentum=0.0),
    Run("sign-plain", "sign, residual", coded("sign(2048)", "residual"), rate=PLAIN, momentum=0.0),
    Run("sign-plain-lost", "sign, rest lost", coded("sign(2048)", "none"), rate=PLAIN, momentum=0.0),
    Run("sign-small", "sign in blocks of 256, residual", coded("sign(256)", "residual"), rate=PLAIN, momentum=0.0),
    Run("top-0.1", "top 0.1 %, residual", top(0.001)),
    Run("dgc", "top 0.1 %, momentum", top(0.001, f"momentum({MOMENTUM})"), momentum=0.0),
    Run("dgc-warm", "top 0.1 %, momentum, warm-up",
        top(0.001, f"momentum({MOMENTUM})", "warmup: falling(100, 0.25)"), momentum=0.0),
    Run("demo", "one of 64 cosines, decay", text_of(EVEN, "compress: demo(0.015625)"), rate=PLAIN, momentum=0.0),
    Run("oscar", "probable 5 %, then sketch 2 %", sketched("probable(0.05) then sketch(3, 0.02)")),
    Run("sketch", "sketch 7 %", sketched("sketch(3, 0.07)")),
    Run("heavy", "3 %, found by a sketch of 4 %", sketched("heavy(0.03, 5, 0.04)")),
    Run("restarted", "top 1 %, from a checkpoint", top(0.01), halfway="restarted"),
    Run("forgotten", "top 1 %, residuals forgotten", top(0.01), halfway="forgotten"),
    Run("levels", "QSGD, 64 levels", coded("levels(64, 512)", "none")),
    Run("ternary", "TernGrad", coded("ternary(2048)", "none")),
    Run("fixed", "integers of 8 bits", text_of(RING, "feedback: residual", "push: dense as fixed(8)",
        "pull: dense as fixed(8)")),
    Run("dense-8", "dense", "dense_ring", ranks=8),
    Run("top-8", "top 1 %, residual", top(0.01), ranks=8),
    Run("sign-plain-8", "sign, residual, no momentum", coded("sign(2048)", "residual"), ranks=8, rate=PLAIN,
        momentum=0.0),
)  # fmt: skip
EXPERIMENTS = (
    Experiment("feedback", "Feedback on and off", "Does it matter that what a call loses comes back in the next?",
               ("dense", "top", "top-lost", "sign", "sign-lost")),
    Experiment("signs", "Signs without momentum", "Is it the residual that signs can't take, or momentum after it?",
               ("dense-plain", "sign-plain", "sign-plain-lost", "sign-small")),
    Experiment("momentum", "One value in a thousand", "What do momentum before the selection and a warm-up do?",
               ("dense", "top-0.1", "dgc", "dgc-warm", "demo")),
    Experiment("sketch", "OSCAR-SW and a plain sketch", "Do known places beside a sketch help, at equal bytes?",
               ("dense", "oscar", "heavy", "sketch")),
    Experiment("restart", "Restart half way", "What is it worth that residuals are in the checkpoint?",
               ("top", "restarted", "forgotten")),
    Experiment("codes", "Codes without a residual, and integers", "What do unbiased codes cost?",
               ("dense", "levels", "ternary", "fixed")),
    Experiment("ranks", "Eight ranks", "Is it the same with more ranks?", ("dense-8", "top-8", "sign-plain-8")),
)  # fmt: skip
