"""The page of kernels has each kernel that templates make, with its module and its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from zenc.codegen.build.gpu_kernels import modules_of
from zenc.codegen.render import KINDS, compression_unit, render

KERNEL = re.compile(r"^ZENC_KERNEL\((\w+), \((.*?)\)(?:, \d+)?\) \{", re.MULTILINE | re.DOTALL)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "kernels.md"
FIRST = "## Of each scheme\n"


def declared(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of each kernel of a rendered source."""
    for name, arguments in KERNEL.findall(source):
        each = [re.sub(r"\bzenc::", "", " ".join(one.split())) for one in arguments.split(",")]
        yield name, ", ".join(one.replace("ZENC_TABLES", "const Tables tables") for one in each)


def rows() -> Iterator[str]:
    """Yield the rows of the tables: kernels of each mapping, then those of compression."""
    made: dict[tuple[str, str, str], list[str]] = {}
    for kind, name_of_kind in KINDS.items():
        sources = render(kind, "cuda")
        modules = modules_of(sources)
        for name, arguments in declared("\n".join(sources.values())):
            made.setdefault((name, modules[name], arguments), []).append(name_of_kind)
    yield "| kernel | module | arguments | only with the balance |\n| --- | --- | --- | --- |"
    for (name, module, arguments), found in made.items():
        yield f"| `{name}` | {module} | `{arguments}` | {'' if found == list(KINDS.values()) else ', '.join(found)} |"
    yield "\n## Of schemes that lose something\n\n| kernel | module | arguments |\n| --- | --- | --- |"
    sources = compression_unit()
    modules = modules_of(sources)
    for name, arguments in declared("\n".join(sources.values())):
        yield f"| `{name}` | {modules[name]} | `{arguments}` |"


def test_the_page_of_kernels_is_that_of_the_templates(assert_golden: Callable[[str, str], None]) -> None:
    """``python -m pytest --update-golden tests/docs/test_kernels.py`` writes the page anew."""
    head, first, _ = PAGE.read_text(encoding="utf-8").partition(FIRST)
    page = f"{head}{first}\n" + "\n".join(rows()) + "\n"
    assert page.count("\n| `zenc_") > 100
    assert_golden("../../docs/reference/kernels.md", page)
