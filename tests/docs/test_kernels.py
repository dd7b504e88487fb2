"""The pages about kernels have each kernel that templates make, with its module, its arguments, reads and writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.docs.pages import ROOT
from zenc.codegen.build.gpu_kernels import modules_of
from zenc.codegen.render import KINDS, compression_unit, render, templates_dir

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
        ((stem, kind),) = re.findall(r"^(.*?)((?:_(?:16|32|64|f32|f16|bf16))?(?:_bulk)?)$", name)
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
    """Return the listed_rows of all tables of kernels, without their heads."""
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
