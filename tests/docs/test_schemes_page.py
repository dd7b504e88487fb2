"""The page about the shipped schemes names exactly these, and has the figures of their plans."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.docs.pages import ROOT
from tests.support.shipped import ALL, LOSSY, SHIPPED, plan_of_shipped
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import FACTOR, SET_KINDS, Phase, PhaseKind, Plan
from zenc.scheme.model import Format
from zenc.simulator.predict import predict
from zenc.verify.proof import verify
from zenc.verify.provenance import Deliveries

PAGE = (ROOT / "docs" / "reference" / "schemes.md").read_text(encoding="utf-8")
SIZES = (8, 16, 32)
DENSITIES: dict[str, Callable[[int], float]] = {
    "apart": lambda k: 0.01 * k,
    "at random": lambda k: 1 - 0.97**k,
    "the same": lambda k: 0.25,
}
"""Densities of the sum of k ranks: without overlap, at random, and with full overlap."""


def table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table after ``heading``: first cell -> the others."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.partition(heading)[2].partition("\n## ")[0], re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in rows}


COSTS = table("## Costs")


def test_the_page_lists_exactly_the_shipped_schemes():
    assert list(table("# The shipped schemes")) == ALL
    assert list(COSTS) == [name for name in SHIPPED if name in COSTS]


@pytest.mark.parametrize("name", ALL)
def test_sources_are_those_of_the_texts(name):
    text = (ROOT / "schemes" / f"{name}.zen").read_text(encoding="utf-8")
    header = " ".join(text.partition(f"scheme {name}")[0].replace("\n#", " ").split())
    source = re.sub(r"[^\w ]", "", table("# The shipped schemes")[name][0])
    missing = [word for word in source.lower().split() if word not in re.sub(r"[^\w ]", "", header).lower()]
    assert not missing, f"{name}.zen does not say {missing}"
    assert "Source: " in header and "Cost " in header and "Use it " in header


@dataclass
class Count:
    """The count of a plan among ``size`` ranks where the sum of k ranks has the density ``density(k)``."""

    plan: Plan
    size: int
    density: Callable[[int], float]
    messages: np.ndarray = field(init=False)
    volume: np.ndarray = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.messages, self.volume = np.zeros(self.size), np.zeros(self.size)
        _, proof = verify(self.plan, self.size, self.observe)
        self.steps = sum(proof.rounds.values())

    def observe(self, phase: Phase, number: int, rows: Deliveries) -> None:
        pairs = np.unique(np.stack((rows.src, rows.dst)), axis=1)
        np.add.at(self.messages, pairs[0], 1)
        if phase.kind in SET_KINDS:
            return  # of indices alone
        carried = zip(rows.contributors.tolist(), rows.pieces.tolist(), strict=True)
        weights = [self.weight(phase.format, contributors, pieces) for contributors, pieces in carried]
        if self.plan.announces and phase.kind is PhaseKind.PUSH:
            weights = [self.held_by_others(contributors) for contributors in rows.contributors.tolist()]
        np.add.at(self.volume, rows.dst, np.array(weights) / self.plan.parts(self.size))

    def weight(self, format: Format, contributors: int, pieces: int) -> float:
        """Return the weight of a part in ``pieces`` that are kept apart, with ``contributors`` together."""
        return pieces * (1.0 if format is Format.DENSE else self.density(contributors // pieces))

    def held_by_others(self, ranks: int) -> float:
        """Return what ``k`` ranks hold of parts that they do not own, which all others share."""
        owned = self.density(self.size) / self.size
        return self.size * (self.density(ranks) - ranks * owned) / (self.size - ranks)


def is_claimed(cell: str, found: float, size: int, density: Callable[[int], float]) -> bool:
    """Return whether ``found`` equals the formula in a cell, or is at most that where the cell says so."""
    match = re.fullmatch(r"(at most )?`(.*)`", cell)
    assert match, cell
    names = {"n": size, "d": density, "log2": lambda k: int(math.log2(k)), "sum": sum, "range": range}
    claimed = eval(match[2], {"__builtins__": {}, **names})
    return found == pytest.approx(claimed) if not match[1] else found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("overlap", DENSITIES)
@pytest.mark.parametrize("name", COSTS)
def test_figures(name, overlap):
    steps, messages, volume = COSTS[name]
    for size in SIZES:
        density = DENSITIES[overlap]
        count = Count(plan_of_shipped(name), size, density)
        assert is_claimed(steps, count.steps, size, density)
        assert is_claimed(messages, count.messages.max(), size, density)
        assert is_claimed(volume, count.volume.max(), size, density)


LOSSES = table("## Lossy schemes")


@pytest.mark.parametrize("name", LOSSY)
def test_bytes_of_lossy_schemes(name):
    """The dense gradient is so long that headers do not count; selections of different ranks overlap by chance only."""
    plan, units = plan_of_shipped(name), 1 << 24
    rows, width = (1 << 16, 1 << 16) if FACTOR in plan.kept else (units, 1)
    names = {"__builtins__": {}, "ceil": math.ceil, "log2": math.log2, **dict(plan.parameters), "R": rows, "C": width}
    match = re.match(r"(at most )?`([^`]*)`", LOSSES[name][1])
    assert match
    for size in SIZES:
        claimed = eval(match[2], {**names, "n": size})
        found = predict(plan, size, uniform(1.0, rows, width)).received / (4 * rows * width)
        assert found <= claimed * 1.002
        assert found >= claimed * (1 / 3 if match[1] else 0.998)


@pytest.mark.parametrize("overlap", DENSITIES)
@pytest.mark.parametrize(("d1", "d2", "d3"), [(4, 2, 1), (4, 2, 2), (3, 3, 2), (8, 4, 2), (5, 1, 3)])
def test_the_formula_in_the_text_of_kylix(d1, d2, d3, overlap):
    d, n = DENSITIES[overlap], d1 * d2 * d3
    count = Count(plan_of_shipped("kylix", d2=d2, d3=d3), n, d)
    push = (d1 - 1) / d1 * d(1) + (d2 - 1) / (d1 * d2) * d(d1) + (d3 - 1) / n * d(d1 * d2)
    assert count.volume == pytest.approx(np.full(n, push + (n - 1) / n * d(n)))
    assert (count.messages == 2 * (d1 + d2 + d3 - 3)).all()
    assert count.steps == 2 * sum(degree > 1 for degree in (d1, d2, d3))


@pytest.mark.parametrize("overlap", DENSITIES)
@pytest.mark.parametrize(("rows", "columns"), [(4, 2), (3, 5), (1, 4), (6, 1), (4, 8)])
def test_the_volumes_of_a_torus(rows, columns, overlap):
    """A way of k ranks passes on the sums of 1 to k - 1 of them; rows take all but 1 / columns of the tensor."""
    d, n = DENSITIES[overlap], rows * columns
    count = Count(plan_of_shipped("torus2d", columns=columns), n, d)
    along_rows = sum(d(i) for i in range(1, columns)) / columns
    along_columns = sum(d(i * columns) for i in range(1, rows)) / n
    assert count.volume == pytest.approx(np.full(n, along_rows + along_columns + (n - 1) / n * d(n)))
    assert count.steps == 2 * (columns + rows - 2)
