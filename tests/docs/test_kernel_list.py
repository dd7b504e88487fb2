"""The page about CUDA lists exactly the existing kernels, and what each reads and writes."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from zenc.codegen.render import templates_dir

PAGE = (ROOT / "docs" / "reference" / "cuda.md").read_text("utf-8")
KERNELS = (templates_dir() / "cuda" / "kernels.cu.j2").read_text("utf-8")
COLUMNS = ["kernel", "what it makes", "reads", "writes"]


def rows() -> list[list[str]]:
    """Return the rows of all tables of kernels, without their heads."""
    section = PAGE.partition("\n## Kernels\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells != COLUMNS and set(cells[0]) != {"-"}]


def test_every_kernel_is_listed_once():
    declared = re.findall(r"\{\{ kernel\(\"(\w+)\"", KERNELS)
    listed = [name for cells in rows() for name in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(listed) == sorted(declared)


def test_each_says_what_it_makes_reads_and_writes():
    assert rows()
    for cells in rows():
        assert len(cells) == len(COLUMNS) and all(cells), cells
