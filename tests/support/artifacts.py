"""Artifacts on disk that were changed, by mistake or on purpose."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.refusals import refusals
from zenc.codegen.artifact import load_artifact
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import Cubin
from zenc.errors import ArtifactError

CUBINS = tuple(
    Cubin(arch, b"\x7fELF" + bytes(range(256)) * 20, "NVRTC 13.0.88", 13) for arch in (Arch(8, 0), Arch(9, 0))
)
"""Cubins for two architectures, which no GPU could run."""


def refused(directory: Path) -> str:
    """Return the id of the error of loading."""
    (diagnostic,) = refusals(ArtifactError, load_artifact, directory)
    assert diagnostic.message and diagnostic.help
    return diagnostic.id


def edit(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def rewrite(directory: Path, name: str, text: str) -> None:
    """Change a file, and its checksum with it."""
    (directory / name).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    edit(directory, lambda manifest: manifest["files"].update({name: digest}))
