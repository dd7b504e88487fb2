"""Sources from a plan: the templates of a target, filled with the few facts that its headers lack.

Templates are thin: the kind of mapping, instantiations, entry points. The algorithms are static headers. Nothing of a
plan but that kind is generated: a call brings the numbers of its mapping, so that plans of a kind share one compiled
unit, and nothing of a user reaches a compiler.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from zenc.codegen.build.cache import HEADERS, open_cache, own_folder, writing
from zenc.codegen.build.own_files import UnsafeError, read_own
from zenc.common.resources import directory
from zenc.errors import BuildError, Diagnostic
from zenc.scheme.model import Contiguous, Encoded, HierarchicalHash, Holders, Permutation
from zenc.scheme.model import Mapping as SlotMapping
from zenc.wire import constants, structs

if TYPE_CHECKING:
    from jinja2 import Environment

    from zenc.plan.ir import Plan


HEADER_SUFFIX = ".h"
TEMPLATE_SUFFIX = ".j2"
NOT_TARGETS = ("draw", "new", "report", "shared")
"""Folders of templates that make no code for a target."""
COMPRESSION = "compress.cu"
"""The file of the kernels of compression, beside those of a mapping where a scheme selects or encodes."""
RENDERED = ("shared/zenc/constants.h", "cuda/zenc_host/call_args.h")
"""Headers that are rendered from ``zenc.wire``, by their paths below ``templates``; each has its template there."""


def templates_dir() -> Path:
    """Return the folder ``templates``; raises InternalError where an installation has lost it."""
    return directory("templates")


def include_dirs(target: str) -> tuple[Path, ...]:
    """Return the folders of headers for generated code of ``target``; rendered headers are in the user's cache.

    Raises CacheError.
    """
    return tuple(root / folder for root in (templates_dir(), _written()) for folder in (target, "shared"))


@cache
def headers(target: str) -> Mapping[str, str]:
    """Return every header that code of ``target`` can include: path below ``templates`` -> text, in a fixed order.

    Read once a process, however many tables it loads kernels for.
    """
    root = templates_dir()
    files = [path for folder in (target, "shared") for path in (root / folder).rglob(f"*{HEADER_SUFFIX}")]
    found = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files}
    made = {name: text for name, text in rendered().items() if name.startswith((f"{target}/", "shared/"))}
    return dict(sorted({**found, **made}.items()))


def template_names(target: str) -> tuple[str, ...]:
    """Return the templates of ``target``, as the jinja2 loader names them: ``cpu/kernels.cpp.j2``."""
    if target in NOT_TARGETS:
        return ()
    files = sorted((templates_dir() / target).glob(f"*{TEMPLATE_SUFFIX}"))
    return tuple(path.relative_to(templates_dir()).as_posix() for path in files)


@cache
def environment() -> Environment:
    """Return the one jinja2 environment; jinja2 is imported late, as only a build needs it."""
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
    """Return the text of each of the headers ``RENDERED``."""
    made = environment().overlay()
    made.filters.update(declared=declared, word=lambda number: f"{number:#x}ULL")
    values = {**vars(structs), **vars(constants)}
    return {name: made.get_template(f"{name}{TEMPLATE_SUFFIX}").render(values) for name in RENDERED}


def declared(layout: Sequence[structs.Field]) -> str:
    """Return the members of a struct, one a line, with their descriptions behind them."""
    lines = []
    for each in layout:
        member = f"    {each.kind} {each.name}{f'[{each.length}]' if each.length else ''};"
        lines.append(f"{member}  // {each.about}" if each.about else member)
    return "\n".join(lines)


def _written() -> Path:
    """Return a folder of the cache with the rendered headers, as they are now."""
    digest = hashlib.sha256("".join(rendered().values()).encode()).hexdigest()
    root = open_cache() / f"{HEADERS}{digest[:16]}"
    for name, text in rendered().items():
        path = own_folder((root / name).parent) / Path(name).name
        if not _is_there(path, text):
            with writing(root):
                _replace(path, text)
    return root


def _is_there(path: Path, text: str) -> bool:
    try:
        return read_own(path) == text.encode()
    except (OSError, UnsafeError):
        return False


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


KINDS: dict[type[SlotMapping], str] = {
    Contiguous: "contiguous",
    Permutation: "permutation",
    HierarchicalHash: "hierarchical_hash",
    Holders: "holders",
    Encoded: "encoded",
}
"""Names of the kinds of mappings, for templates: their only input."""


def render(kind: type[SlotMapping], target: str = "cpu") -> dict[str, str]:
    """Render the compiled unit of mappings of a ``kind``: file name -> text, one for each template of ``target``.

    Raises BuildError (``unknown-target``).
    """
    names = template_names(target)
    if not names:
        raise BuildError(Diagnostic("unknown-target", f"there are no templates for the target {target!r}"))
    return {_file_name(name): environment().get_template(name).render(mapping=KINDS[kind]) for name in names}


def rendered_for(plan: Plan, target: str) -> dict[str, str]:
    """Return the generated sources of ``plan``: file name -> text. Raises BuildError (``unknown-target``)."""
    keeps = plan.is_lossy or plan.feedback is not None
    return {**render(type(plan.mapping), target), **(compression_unit() if target == "cuda" and keeps else {})}


def compression_unit() -> dict[str, str]:
    """Render the kernels of compression for GPUs, which do not depend on a mapping: file name -> text."""
    name = f"cuda/compress/{COMPRESSION}{TEMPLATE_SUFFIX}"
    return {COMPRESSION: environment().get_template(name).render()}


def _file_name(template: str) -> str:
    return template.rpartition("/")[2].removesuffix(TEMPLATE_SUFFIX)
