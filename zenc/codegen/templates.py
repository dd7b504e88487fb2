"""The templates and the static headers of a target."""

from __future__ import annotations

from pathlib import Path

from zenc.resources import directory

HEADER_SUFFIX = ".h"
TEMPLATE_SUFFIX = ".j2"
NOT_TARGETS = ("draw", "new", "report", "shared")
"""Folders of templates that make no code for a target."""


def templates_dir() -> Path:
    """The folder ``templates``. Raises InternalError where an installation has lost it."""
    return directory("templates")


def include_dirs(target: str) -> tuple[Path, ...]:
    """The folders that generated code of ``target`` includes headers from."""
    return (templates_dir() / target, templates_dir() / "shared")


def headers(target: str) -> dict[str, str]:
    """Every header that code of ``target`` can include: its path below ``templates`` and its text, in a fixed order."""
    files = sorted(path for folder in include_dirs(target) for path in folder.rglob(f"*{HEADER_SUFFIX}"))
    return {path.relative_to(templates_dir()).as_posix(): path.read_text("utf-8") for path in files}


def template_names(target: str) -> tuple[str, ...]:
    """The templates of ``target``, as the jinja2 loader names them: ``cpu/kernels.cpp.j2``."""
    if target in NOT_TARGETS:
        return ()
    files = sorted((templates_dir() / target).glob(f"*{TEMPLATE_SUFFIX}"))
    return tuple(path.relative_to(templates_dir()).as_posix() for path in files)
