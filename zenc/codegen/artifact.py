"""What compiling gives: the plan, the generated sources and a manifest, in memory or in a directory.

directory/
    manifest.json     versions, scheme, size, target, digest, and the SHA-256 of every other file
    plan.json         the plan, for people and for loading
    kernels.cpp       generated code; built at first use, into the cache
    sources/*.zen     the texts it was compiled from, so that a later error can point at them
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zenc._version import __version__
from zenc.errors import ArtifactError, Diagnostic, Source
from zenc.plan.model import Plan
from zenc.plan.serial import plan_from_json, plan_text

ARTIFACT_VERSION = 1
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled scheme. ``sources`` are the generated files, ``texts`` the scheme and what it imports."""

    plan: Plan
    target: str
    sources: dict[str, str]
    texts: tuple[Source, ...] = ()
    proved_sizes: tuple[int, ...] = field(default=())

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``manifest.json`` says."""
        return {
            "zenc_artifact": ARTIFACT_VERSION,
            "zenc": __version__,
            "scheme": self.plan.scheme,
            "size": self.plan.size,
            "target": self.target,
            "digest": self.plan.digest,
            "proved_sizes": list(self.proved_sizes),
            "texts": [source.name for source in self.texts],
            "files": {name: _sha256(text) for name, text in self.files().items()},
        }

    def files(self) -> dict[str, str]:
        """All files but the manifest: name in the directory -> text."""
        texts = {f"sources/{index}.zen": source.text for index, source in enumerate(self.texts)}
        return {"plan.json": plan_text(self.plan), **self.sources, **texts}

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the artifact to ``directory`` (made if it is not there); the manifest comes last.

        Raises ArtifactError (``artifact-not-written``) where that can't be done.
        """
        target = Path(directory)
        try:
            (target / "sources").mkdir(parents=True, exist_ok=True)
            for name, text in self.files().items():
                _write(target / name, text)
            _write(target / "manifest.json", json.dumps(self.manifest, indent=2) + "\n")
        except OSError as error:
            message = f"can't write the artifact to {target}: {error.strerror or error}"
            raise ArtifactError(Diagnostic("artifact-not-written", message, help="choose another directory")) from error
        return target

    def demand_size(self, size: int) -> None:
        """Raise ArtifactError (``wrong-size``) unless the artifact serves ``size`` ranks."""
        if self.plan.size not in (None, size):
            message = f"{self.plan.scheme} was compiled for {self.plan.size} ranks, and this group has {size}"
            help = f"compile it with --ranks {size}, or without --ranks for any number"
            raise ArtifactError(Diagnostic("wrong-size", message, help=help))


def load_artifact(directory: str | os.PathLike[str]) -> Artifact:
    """The artifact that ``save`` wrote to ``directory``.

    Raises ArtifactError: ``not-an-artifact``, ``artifact-damaged`` (cut short or edited) or ``other-version``.
    """
    where = Path(directory)
    manifest = _manifest(where)
    if manifest.get("zenc_artifact") != ARTIFACT_VERSION or manifest.get("zenc") != __version__:
        message = f"{where} was compiled by zenc {manifest.get('zenc')}, and this is {__version__}"
        raise ArtifactError(Diagnostic("other-version", message, help="compile the scheme again"))
    try:
        return _read(where, manifest)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise _damaged(where, f"its manifest lacks what it should say ({error})") from error


def _read(where: Path, manifest: dict[str, Any]) -> Artifact:
    files = {name: _checked(where, name, digest) for name, digest in manifest["files"].items()}
    texts = tuple(Source(name, files[f"sources/{index}.zen"]) for index, name in enumerate(manifest["texts"]))
    plan = plan_from_json(json.loads(files["plan.json"]), texts)
    if plan.digest != manifest["digest"]:
        raise _damaged(where, "its plan is not the one of its manifest")
    sources = {name: text for name, text in files.items() if name != "plan.json" and "/" not in name}
    target = str(manifest["target"])
    if not target.isidentifier():
        raise ValueError(f"{target!r} is no target")
    return Artifact(plan, target, sources, texts, tuple(manifest["proved_sizes"]))


def _manifest(where: Path) -> dict[str, Any]:
    path = where / "manifest.json"
    if not path.is_file():
        message = f"{where} is no compiled scheme: it has no manifest.json"
        raise ArtifactError(Diagnostic("not-an-artifact", message, help=f"zenc compile SCHEME.zen -o {where}"))
    try:
        data = json.loads(_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(where, "its manifest.json can't be read") from error
    if not isinstance(data, dict):
        raise _damaged(where, "its manifest.json is no object")
    return data


def _checked(where: Path, name: str, digest: str) -> str:
    """The text of a file of the artifact, which must lie inside it and be as it was written."""
    path = where / name
    if where.resolve() not in path.resolve().parents:
        raise _damaged(where, f"{name} lies outside of it")
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        raise _damaged(where, f"{name} is missing or can't be read") from error
    if _sha256(text) != digest:
        raise _damaged(where, f"{name} was changed or cut short after it was compiled")
    return text


def _text(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise ValueError("no file, or too large")
    return path.read_text(encoding="utf-8")


def _damaged(where: Path, why: str) -> ArtifactError:
    return ArtifactError(Diagnostic("artifact-damaged", f"{where} is damaged: {why}", help="compile the scheme again"))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    """Write whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
