"""The pages about kernels and schemes have each of them, with modules, arguments, reads, writes, and pictures."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import ROOT
from tests.support.shipped import ALL, LOSSY, SHIPPED, plan_of_shipped
from zenc.codegen.build.gpu_kernels import modules_of
from zenc.codegen.render import KINDS, compression_unit, render, templates_dir
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import FACTOR, SET_KINDS, Phase, PhaseKind, Plan
from zenc.scheme.model import Format
from zenc.simulator.predict import predict
from zenc.verify.proof import verify
from zenc.verify.provenance import Deliveries

KERNEL = re.compile(r"^ZENC_KERNEL\((\w+), \((.*?)\)(?:, \d+)?\) \{", re.MULTILINE | re.DOTALL)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "kernels.md"
FIRST = "## Of each scheme\n"


def declared(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of each kernel of a rendered source."""
    for name, arguments in KERNEL.findall(source):
        each = [re.sub(r"\bzenc::", "", " ".join(one.split())) for one in arguments.split(",")]
        each = [one.replace("ZENC_TABLES", "Tables") for one in each]
        yield name, ", ".join(one if "*" in one else one.removeprefix("const ") for one in each)


def in_braces(texts: list[str]) -> str:
    """Return texts of as many words as one, whose words stand in braces where they differ: ``{u16,u32}* out``."""
    words = [dict.fromkeys(alike) for alike in zip(*(text.split(" ") for text in texts), strict=True)]
    return " ".join(_braces(list(found)) for found in words)


def _braces(words: list[str]) -> str:
    ends = [re.fullmatch(r"(\w*?)(\W*)", word) for word in words]
    if len(words) == 1 or not all(ends):
        return words[0]
    return "{" + ",".join(end[1] for end in ends if end) + "}" + str(ends[0] and ends[0][2])


def rows() -> Iterator[str]:
    """Yield the rows of the tables: kernels of each mapping, then those of compression; kinds of one share a row."""
    made: dict[tuple[str, str, str], list[str]] = {}
    for kind, name_of_kind in KINDS.items():
        sources = render(kind, "cuda")
        modules = modules_of(sources)
        for name, arguments in declared("\n".join(sources.values())):
            made.setdefault((name, modules[name], arguments), []).append(name_of_kind)
    balances = {key: "" if found == list(KINDS.values()) else ", ".join(found) for key, found in made.items()}
    yield "| kernel | module | arguments | only with the balance |\n| --- | --- | --- | --- |"
    yield from (f"{row} {only} |" for row, only in _shared(balances))
    yield "\n## Of schemes that lose something\n\n| kernel | module | arguments |\n| --- | --- | --- |"
    sources = compression_unit()
    modules = modules_of(sources)
    lossy = declared("\n".join(sources.values()))
    yield from (row for row, _ in _shared({(name, modules[name], arguments): "" for name, arguments in lossy}))


def _shared(kernels: Mapping[tuple[str, str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield a row for all kinds of a kernel, and with which balances it is there."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for (name, module, arguments), only in kernels.items():
        ((stem, kind),) = re.findall(r"^(.*?)((?:_(?:16|32|64|f32|f16|bf16))?)$", name)
        found.setdefault((stem, module.removesuffix(kind.upper()), only), {})[kind] = arguments
    for (stem, module, only), kinds in found.items():
        names = stem + (",".join(kinds).join("{}") if len(kinds) > 1 else next(iter(kinds)))
        modules = module + (",".join(kinds).upper().join("{}") if len(kinds) > 1 else next(iter(kinds)).upper())
        yield f"| `{names}` | {modules} | `{in_braces(list(kinds.values()))}` |", only


def test_the_page_of_kernels_is_that_of_the_templates(assert_golden: Callable[[str, str], None]) -> None:
    """``python -m pytest --update-golden tests/docs/test_kernels.py`` writes the page anew."""
    head, first, _ = PAGE.read_text(encoding="utf-8").partition(FIRST)
    page = f"{head}{first}\n" + "\n".join(rows()) + "\n"
    assert page.count("\n| `zenc_") > 50
    assert_golden("../../docs/reference/kernels.md", page)


CUDA = (ROOT / "docs" / "reference" / "cuda.md").read_text("utf-8")
KERNELS = (templates_dir() / "cuda" / "kernels.cu.j2").read_text("utf-8")
COLUMNS = ["kernel", "what it makes", "reads", "writes"]


def listed_rows() -> list[list[str]]:
    """Return the rows of all tables of kernels, without their heads."""
    section = CUDA.partition("\n## Kernels\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells != COLUMNS and set(cells[0]) != {"-"}]


def test_every_kernel_is_listed_once():
    declared = re.findall(r"\{\{ kernel\(\"(\w+)\"", KERNELS)
    listed = [name for cells in listed_rows() for name in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(listed) == sorted(declared)


def test_each_says_what_it_makes_reads_and_writes():
    assert listed_rows()
    for cells in listed_rows():
        assert len(cells) == len(COLUMNS) and all(cells), cells


SCHEMES_PAGE = (ROOT / "docs" / "reference" / "schemes.md").read_text(encoding="utf-8")
SIZES = (8, 16, 32)
DENSITIES: dict[str, Callable[[int], float]] = {
    "apart": lambda k: 0.01 * k,
    "at random": lambda k: 1 - 0.97**k,
    "the same": lambda k: 0.25,
}
"""Densities of the sum of k ranks: without overlap, at random, and with full overlap."""


def table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table after ``heading``: first cell -> the others."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \|$", SCHEMES_PAGE.partition(heading)[2].partition("\n## ")[0], re.MULTILINE
    )
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
