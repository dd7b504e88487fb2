"""Versions of torch: which ones were run, what is said of others, and that the package asks for no other than these."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch

from zenc.runtime.versions import RUN_WITH, untested, warn_if_untested

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.13.9", "2.8.0+cu128", torch.__version__])
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
