"""Curves of runs as files, and the numbers that the page has of them.

Curve = run x seed x Look*        # docs/benchmarks/convergence/RUN.json has those of all seeds
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from benchmarks.convergence.runs import EXPERIMENTS, RUNS, Experiment, Run
from benchmarks.convergence.trainer import Look
from benchmarks.pages import DOCS, LEFT, RIGHT, ROOT, between, rounded, table
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import as_svg

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase


FOLDER = DOCS / "benchmarks" / "convergence"


@dataclass(frozen=True, slots=True)
class Curve:
    """The looks of one run at one seed. ``weights``: digest of the parameters at the end. ``seconds``: of processor."""

    seed: int
    looks: Sequence[Look]
    weights: str
    seconds: float

    @property
    def end(self) -> Look:
        return self.looks[-1]

    def steps_to(self, bits: float) -> float | None:
        """Return the first step at which held-out text takes ``bits`` or fewer, between looks by a line.

        None: never.
        """
        for before, after in zip([None, *self.looks], self.looks, strict=False):
            if after.bits <= bits:
                if before is None:
                    return float(after.step)
                share = (before.bits - bits) / (before.bits - after.bits)
                return before.step + share * (after.step - before.step)
        return None


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of a run at all seeds. ``about``: versions, and the scale at which it was trained."""

    run: str
    about: Mapping[str, Any]
    of_seeds: Sequence[Curve]

    def to_json(self) -> str:
        lines = [json.dumps(rounded(asdict(curve), 6)) for curve in self.of_seeds]
        head = f' "run": {json.dumps(self.run)},\n "about": {json.dumps(self.about)},\n "of_seeds": [\n  '
        return "{\n" + head + ",\n  ".join(lines) + "\n ]\n}\n"

    @staticmethod
    def from_json(text: str) -> Curves:
        data = json.loads(text)
        return Curves(data["run"], data["about"], [_curve_from(each) for each in data["of_seeds"]])

    @property
    def bits(self) -> tuple[float, float, float]:
        """Bits at the end: least, mean and greatest of the seeds."""
        found = [curve.end.bits for curve in self.of_seeds]
        return min(found), fmean(found), max(found)

    @property
    def sent(self) -> float:
        """Bytes that rank 0 sends in a step, on average."""
        return fmean(curve.end.sent / curve.end.step for curve in self.of_seeds)

    @property
    def left(self) -> float | None:
        """The norm of the residual over that of a gradient, at the end; the median of the seeds."""
        found = [curve.end.left for curve in self.of_seeds]
        return None if None in found else median(each for each in found if each is not None)

    def over(self, other: Curves) -> tuple[float, float, float]:
        """Return the bits at the end beyond those of ``other`` at the same seed: least, mean and greatest."""
        theirs = {curve.seed: curve.end.bits for curve in other.of_seeds}
        found = [curve.end.bits - theirs[curve.seed] for curve in self.of_seeds if curve.seed in theirs]
        return min(found), fmean(found), max(found)

    def steps_to(self, bits: float) -> float | None:
        """Return the mean step of the seeds at which they reach ``bits``; None if one of them never gets there."""
        found = [curve.steps_to(bits) for curve in self.of_seeds]
        return None if None in found else fmean(each for each in found if each is not None)


def _curve_from(data: Mapping[str, Any]) -> Curve:
    """Return a curve; bits that were not finite are infinite: the run has diverged."""
    looks = [Look(**{**look, "bits": math.inf if look["bits"] is None else look["bits"]}) for look in data["looks"]]
    return Curve(**{**data, "looks": looks})


def load(runs: Iterable[Run], folder: Path = FOLDER) -> dict[str, Curves]:
    """Return the curves of those of ``runs`` that have been trained, by name."""
    files = {run.name: folder / f"{run.name}.json" for run in runs}
    return {name: Curves.from_json(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}


def save(curves: Curves, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{curves.run}.json").write_text(curves.to_json(), encoding="utf-8")


PAGE = ROOT / "benchmarks" / "reports" / "convergence.md"
BY_NAME: Mapping[str, Run] = {run.name: run for run in RUNS}
HEADS = ("", "bits a character", "over the first", "steps to target", "MB a step", "times fewer", "left out / gradient")
Found = Mapping[str, Curves]


def written(page: str, folder: Path = FOLDER) -> str:
    found = load(RUNS, folder)
    parts = [*(section(experiment, found) for experiment in EXPERIMENTS), scale(found)]
    return between(page, "\n\n".join(part for part in parts if part))


def draw(folder: Path = FOLDER) -> None:
    found = load(RUNS, folder)
    for experiment in EXPERIMENTS:
        if experiment.runs[0] in found:
            (folder / f"{experiment.name}.svg").write_text(figure(experiment, found), encoding="utf-8")


def section(experiment: Experiment, found: Found) -> str:
    """Return a question, its figure, and a row for each run."""
    title = f"## {experiment.title}\n\n{experiment.question}"
    if experiment.runs[0] not in found:
        return f"{title}\n\nNot trained."
    drawn = f"../../docs/benchmarks/convergence/{experiment.name}.svg"
    picture = f"![{experiment.title}: held-out bits a character by step]({drawn})"
    first = found[experiment.runs[0]]
    target = target_of(first)
    rows = [row_of(BY_NAME[name], found[name], first, target) for name in experiment.runs if name in found]
    made = table(HEADS, (LEFT, *[RIGHT] * (len(HEADS) - 1)), rows)
    ranks = BY_NAME[experiment.runs[0]].ranks
    said = f"{ranks} ranks; the target is {target:.3f} bits, which the first run has half way."
    return "\n\n".join((title, picture, made, said, *verdicts(experiment, found)))


def target_of(first: Curves) -> float:
    """Return the mean bits of ``first`` at half of its steps."""
    half = [min(curve.looks, key=lambda look: abs(2 * look.step - curve.end.step)).bits for curve in first.of_seeds]
    return sum(half) / len(half)


def row_of(run: Run, curves: Curves, first: Curves, target: float) -> tuple[str, ...]:
    """Return means of the seeds, and in brackets the least and the greatest."""
    steps, ratio = curves.steps_to(target), first.sent / curves.sent
    return (
        run.label,
        spread_text(*curves.bits),
        "" if curves.run == first.run else spread_text(*curves.over(first), sign="+"),
        "never" if steps is None else f"{steps:.0f}",
        f"{curves.sent / 1e6:.3f}",
        "" if curves.run == first.run else f"{ratio:.1f}",
        "" if curves.left is None else f"{curves.left:.1f}",
    )


def spread_text(low: float, mean: float, high: float, sign: str = "") -> str:
    if not math.isfinite(mean):
        return "diverged"
    return f"{mean:{sign}.3f}" if low == high else f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def verdicts(experiment: Experiment, found: Found) -> list[str]:
    """Return, for runs that restart from a checkpoint, whether they end with the same weights as those that do not."""
    said = []
    for name in experiment.runs:
        if BY_NAME[name].halfway == "restarted" and name in found:
            through = {curve.seed: curve.weights for curve in found[experiment.runs[0]].of_seeds}
            same = all(through.get(curve.seed) == curve.weights for curve in found[name].of_seeds)
            words = "the same weights, to the bit, as" if same else "OTHER WEIGHTS THAN"
            said.append(f"The run from a checkpoint ends with {words} the one that was not interrupted.")
    return said


def figure(experiment: Experiment, found: Found) -> str:
    """Return a figure of held-out bits by step and by bytes: the mean of the seeds between least and greatest."""
    names = [name for name in experiment.runs if name in found]
    colours = distinct(len(names))

    def plot(on: FigureBase) -> None:
        by_step, by_bytes = on.add_subplot(1, 2, 1), on.add_subplot(1, 2, 2)
        for name, colour in zip(names, colours, strict=True):
            steps, low, mean, high = band(found[name])
            sent = [step * found[name].sent / 1e6 for step in steps]
            for axes, across in ((by_step, steps), (by_bytes, sent)):
                axes.plot(across, mean, color=colour, label=BY_NAME[name].label, linewidth=1.3)
                axes.fill_between(across, low, high, color=colour, alpha=0.2, linewidth=0)
        by_step.set(xlabel="steps", ylabel="bits a character, held out")
        by_bytes.set(xlabel="MB sent by a rank", xscale="log")
        for axes in (by_step, by_bytes):
            axes.grid(True)
            axes.set_ylim(*limits(found[name] for name in names))
        by_step.legend()

    ranks = BY_NAME[experiment.runs[0]].ranks
    return as_svg(plot, 9.6, 4.1, f"{experiment.title}: held-out text by steps and by bytes", f"{ranks} ranks")


def band(curves: Curves) -> tuple[list[int], list[float], list[float], list[float]]:
    """Return by step the least, mean and greatest bits of the seeds, as far as all are finite."""
    looks = zip(*(curve.looks for curve in curves.of_seeds), strict=True)
    finite = [at for at in looks if all(math.isfinite(look.bits) for look in at)]
    of_seeds = [[look.bits for look in at] for at in finite]
    means = [sum(bits) / len(bits) for bits in of_seeds]
    return [at[0].step for at in finite], [min(bits) for bits in of_seeds], means, [max(bits) for bits in of_seeds]


def limits(several: Iterable[Curves]) -> tuple[float, float]:
    """Return the limits of the axis of bits: from the best of all to the first look of the best run."""
    bands = [band(curves) for curves in several]
    low = min(min(lows) for _, lows, _, _ in bands if lows)
    return low - 0.1, max(4.5, low + 2.0)


def scale(found: Found) -> str:
    """Return the scale of the training, its machine and its time, in words."""
    if not found:
        return ""
    abouts = {tuple(sorted(curves.about.items())) for curves in found.values()}
    seconds = sum(curve.seconds for curves in found.values() for curve in curves.of_seeds)
    lines = [", ".join(f"{key} {value}" for key, value in about) for about in sorted(abouts, key=str)]
    return "\n\n".join(("## Scale", f"{seconds / 60:.0f} minutes of processor time in all.", *lines))
