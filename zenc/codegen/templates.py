"""The templates and the headers of a target: static ones, and those that are made of ``zenc.wire``.

Constants and layouts that C++ shares with Python are rendered into headers whenever something is compiled, so that
there is one text of them.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from zenc.codegen.build.cache import HEADERS, open_cache, writing
from zenc.resources import directory
from zenc.wire import constants, structs

if TYPE_CHECKING:
    from jinja2 import Environment

HEADER_SUFFIX = ".h"
TEMPLATE_SUFFIX = ".j2"
NOT_TARGETS = ("draw", "new", "report", "shared")
"""Folders of templates that make no code for a target."""
RENDERED = ("shared/zenc/constants.h", "cuda/zenc_host/call_args.h")
"""Headers that are made of ``zenc.wire``, by their paths below ``templates``; each has its template there."""


def templates_dir() -> Path:
    """The folder ``templates``. Raises InternalError where an installation has lost it."""
    return directory("templates")


def include_dirs(target: str) -> tuple[Path, ...]:
    """The folders that generated code of ``target`` includes headers from. Rendered ones are in the user's cache.

    Raises CacheError.
    """
    return tuple(root / folder for root in (templates_dir(), _written()) for folder in (target, "shared"))


def headers(target: str) -> dict[str, str]:
    """Every header that code of ``target`` can include: its path below ``templates`` and its text, in a fixed order."""
    root = templates_dir()
    files = [path for folder in (target, "shared") for path in (root / folder).rglob(f"*{HEADER_SUFFIX}")]
    found = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files}
    made = {name: text for name, text in rendered().items() if name.startswith((f"{target}/", "shared/"))}
    return dict(sorted({**found, **made}.items()))


def template_names(target: str) -> tuple[str, ...]:
    """The templates of ``target``, as the jinja2 loader names them: ``cpu/kernels.cpp.j2``."""
    if target in NOT_TARGETS:
        return ()
    files = sorted((templates_dir() / target).glob(f"*{TEMPLATE_SUFFIX}"))
    return tuple(path.relative_to(templates_dir()).as_posix() for path in files)


@cache
def environment() -> Environment:
    """The one jinja2 environment. Late import: only a build needs it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is C++, and takes no text from outside
    )


@cache
def rendered() -> dict[str, str]:
    """The text of each of the headers ``RENDERED``."""
    made = environment().overlay()
    made.filters.update(declared=declared, word=lambda number: f"{number:#x}ULL")
    values = {**vars(structs), **vars(constants)}
    return {name: made.get_template(f"{name}{TEMPLATE_SUFFIX}").render(values) for name in RENDERED}


def declared(layout: Sequence[structs.Field]) -> str:
    """The members of a struct, one a line, and what they hold behind them."""
    lines = []
    for each in layout:
        member = f"    {each.kind} {each.name}{f'[{each.length}]' if each.length else ''};"
        lines.append(f"{member}  // {each.about}" if each.about else member)
    return "\n".join(lines)


def _written() -> Path:
    """A folder of the cache with the rendered headers, as they are now."""
    digest = hashlib.sha256("".join(rendered().values()).encode()).hexdigest()
    root = open_cache() / f"{HEADERS}{digest[:16]}"
    for name, text in rendered().items():
        if not (root / name).is_file() or (root / name).read_text("utf-8") != text:
            with writing(root):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                _replace(root / name, text)
    return root


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
