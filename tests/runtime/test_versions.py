"""Versions: tested ones of torch and notices about others, and the same zenc on all ranks."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import zenc
from zenc.runtime.group import versions
from zenc.runtime.group.versions import RUN_WITH, sources_digest, told_of_zenc, untested, warn_if_untested

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
OWN = f"zenc {zenc.__version__} (sources {sources_digest()[:8]})"
OTHER = {
    "version": f"zenc 0.0.9 (sources {sources_digest()[:8]})",
    "sources": f"zenc {zenc.__version__} (sources 01234567)",
    "switch": f"{OWN} with ZENC_SOCKETS=0",
    "setting": f"{OWN} with ZENC_SHARED_MEMORY=maybe",
}
"""Properties of a rank, by what differs."""


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.13.9", "2.8.0+cu128", "2.11.0", torch.__version__])
def test_versions_that_were_run(version):
    assert untested(version) == ""


@pytest.mark.parametrize("version", ["2.3.1", "2.16.0a0+git1234", "2.130.0", "3.0", "main"])
def test_another_version_is_told_once_and_used(version, caplog):
    with caplog.at_level(logging.WARNING, "zenc"):
        warn_if_untested(version)
        warn_if_untested(version)
    (record,) = caplog.records
    assert f"not run with torch {version} yet" in record.getMessage()


def test_the_oldest_that_was_run_is_what_the_package_asks_for():
    oldest = re.search(r'"torch>=([\d.]+)"', PYPROJECT.read_text(encoding="utf-8"))
    assert oldest and RUN_WITH[0].startswith(oldest[1]) and tuple(sorted(RUN_WITH, key=_numbers)) == RUN_WITH


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def load_with_another(group: dist.ProcessGroup, what: str, other: int) -> list[str]:
    """Return the error of loading where one rank runs another zenc; then a sum in a group where none does."""
    own = dist.new_group(list(range(group.size())))
    changes = {
        "version": mock.patch.object(versions, "__version__", "0.0.9"),
        "sources": mock.patch.object(versions, "sources_digest", lambda: "01234567" * 8),
        "switch": mock.patch.dict(os.environ, ZENC_SOCKETS="0"),
        "setting": mock.patch.dict(os.environ, ZENC_SHARED_MEMORY="maybe"),
    }
    found = []
    with changes[what] if group.rank() == other else mock.patch.dict(os.environ):
        try:
            zenc.load("balanced", own, deadline=20)
        except zenc.SynchronisationError as error:
            (told,) = error.diagnostics
            found = [told.id, told.message, *told.notes]
    again = zenc.load("balanced", dist.new_group(list(range(group.size()))), deadline=20)
    return [*found, str(float(again.all_reduce(torch.ones(5)).sum()))]


@pytest.mark.parametrize(("what", "other"), [("version", 1), ("sources", 3), ("switch", 2), ("setting", 1)])
def test_ranks_with_another_zenc_are_told_before_anything_else(four: Any, what: str, other: int) -> None:
    rest = ", ".join(str(rank) for rank in range(4) if rank != other)
    expected = [
        "different-versions",
        f"rank 0 runs {OWN}, and rank {other} {OTHER[what]}",
        f"ranks {rest}: {OWN}",
        f"ranks {other}: {OTHER[what]}",
        "20.0",
    ]
    assert four.run("tests.runtime.test_versions:load_with_another", what=what, other=other) == [expected] * 4


def test_the_digest_is_of_all_that_makes_code_and_messages(tmp_path: Path) -> None:
    assert told_of_zenc() == OWN and re.fullmatch(r"[0-9a-f]{64}", sources_digest())
    found = [sources_digest()]
    for name, text in (("a.h", "int x;"), ("a.h", "int y;"), ("b.h", "int y;"), ("a.h", "int x;")):
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_text(text)
        with mock.patch.object(versions, "directory", lambda _: tmp_path):
            found.append(sources_digest.__wrapped__())
    assert found[1] == found[4] and len(set(found)) == 4
    read = list[Path]()
    with mock.patch.object(Path, "read_bytes", lambda path: read.append(path) or b""):
        sources_digest.__wrapped__()
    assert {path for path in Path(zenc.__file__).parent.rglob("*.py") if "share" not in path.parts} <= set(read)
