"""Artifacts on disk."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import zenc
from tests.support.artifacts import CUBINS
from tests.support.cases import COMBINATIONS, scheme_text

TEXT = scheme_text(*COMBINATIONS[-1])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact on disk, which no test changes."""
    return zenc.compile_text(TEXT, name="mine.zen", ranks=3).save(tmp_path_factory.mktemp("artifact") / "mine")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


@pytest.fixture(scope="module")
def saved_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with kernels for two architectures on disk, which no test changes."""
    artifact = replace(zenc.compile("agsparse", target="cuda", arch="none"), cubins=CUBINS)
    return artifact.save(tmp_path_factory.mktemp("cuda") / "agsparse")


@pytest.fixture
def copy_cuda(saved_cuda: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_cuda, tmp_path / "cuda"))
