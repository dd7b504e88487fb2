"""The artifact of a compilation: plan, generated sources and manifest, in memory or in a directory.

directory/
    manifest.json     versions, scheme, size, target, digest, and the SHA-256 of every other file
    plan.json         the plan, for people and for loading
    kernels.cpp       generated code; built at first use, into the cache. kernels.cu for the target cuda
    sm_90.cubin       the same for a GPU architecture, compiled: for machines without a compiler for kernels
    sources/*.zen     the texts it was compiled from, so that a later error can point at them
    candidates/*/     of a scheme that chooses: a directory like this for each candidate; the first is also here
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from zenc._version import __version__
from zenc.codegen.build.arch import named
from zenc.codegen.build.gpu_kernels import Cubin
from zenc.codegen.call_program import CODE, DATA
from zenc.common.json_codec import Codec, exactly
from zenc.common.resources import write_bytes
from zenc.common.untrusted import parse_json, read_bytes
from zenc.common.versioned import ARTIFACT, PLAN, VersionedForm
from zenc.common.wording import count
from zenc.errors import ArtifactError, Diagnostic, Source, first_line
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed
from zenc.scheme.model import Settings

CUBIN_SUFFIX = ".cubin"
CANDIDATES = "candidates"
MANIFEST, PLAN_FILE = "manifest.json", "plan.json"
MOST_BYTES, MOST_FILES, MOST_ARTIFACTS = 1 << 26, 1000, 100
"""Most bytes, files and artifacts in an artifact or a compiled strategy, with all artifacts in it."""


@dataclass(frozen=True, slots=True)
class Choosing:
    """The rest of a compiled choice, beside its first candidate: its settings, and the artifacts of all candidates."""

    name: str
    settings: Settings
    candidates: Mapping[str, Artifact]

    @property
    def digest(self) -> str:
        """64 hex digits that two choices share only if they have equal plans, and are made alike."""
        plans = [(name, artifact.plan.digest) for name, artifact in self.candidates.items()]
        return _sha256(json.dumps([asdict(self.settings), plans]).encode())

    def able(self, size: int) -> dict[str, Artifact]:
        """Return the candidates that run among ``size`` ranks; raises ArtifactError (``wrong-size``) without any."""
        fit = {name: artifact for name, artifact in self.candidates.items() if artifact.plan.size in (None, size)}
        found = {name: artifact for name, artifact in fit.items() if allowed(artifact.plan, [size])}
        if not found:
            message = f"no candidate of {self.name}, as it was compiled, runs among {count(size, 'rank')}"
            raise ArtifactError(Diagnostic("wrong-size", message, help=f"compile it with --ranks {size}"))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, as ``manifest.json`` has it: settings, and the plan's digest of each candidate."""
        plans = {name: artifact.plan.digest for name, artifact in self.candidates.items()}
        return {"name": self.name, "settings": asdict(self.settings), "candidates": plans}


@dataclass(frozen=True, slots=True, repr=False)
class Artifact:
    """A compiled scheme; ``sources`` are the generated files, ``texts`` the scheme and its imports.

    ``cubins`` are the kernels of the target cuda, by ascending architecture, ``sequences`` its call sequences as
    ``zenc.codegen.call_program`` renders them, where the number of ranks is known. For a scheme that chooses among
    others this is the artifact of its first candidate, which runs until it has chosen; ``choosing`` has all of them.
    """

    plan: Plan
    target: str
    sources: dict[str, str]
    texts: tuple[Source, ...] = ()
    proved_sizes: tuple[int, ...] = field(default=())
    cubins: tuple[Cubin, ...] = ()
    choosing: Choosing | None = None
    sequences: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the scheme, or of the choice."""
        return self.choosing.name if self.choosing else self.plan.scheme

    @property
    def digest(self) -> str:
        """64 hex digits that two artifacts share only if they mean the same."""
        return self.choosing.digest if self.choosing else self.plan.digest

    def __repr__(self) -> str:
        ranks = "any number of ranks" if self.plan.size is None else f"{self.plan.size} ranks"
        return f"<zenc.Artifact {self.name} for {ranks}, target {self.target}, digest {self.digest[:12]}>"

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of ``manifest.json``."""
        return {
            **ARTIFACT.head,
            "zenc": __version__,
            "scheme": self.plan.scheme,
            "size": self.plan.size,
            "target": self.target,
            "digest": self.plan.digest,
            "proved_sizes": list(self.proved_sizes),
            "texts": [source.name for source in self.texts],
            "cubins": {str(cubin.arch): {"compiler": cubin.compiler, "cuda": cubin.cuda} for cubin in self.cubins},
            **({"choice": self.choosing.to_json()} if self.choosing else {}),
            "files": {name: _sha256(content) for name, content in self.files().items()},
        }

    def files(self) -> dict[str, bytes]:
        """Return all files but the manifest: name in the directory -> content."""
        texts = {f"sources/{index}.zen": source.text for index, source in enumerate(self.texts)}
        readable = {PLAN_FILE: self.plan.text(), **self.sources, **self.sequences, **texts}
        images = {f"{cubin.arch}{CUBIN_SUFFIX}": cubin.image for cubin in self.cubins}
        return {**{name: text.encode() for name, text in readable.items()}, **images}

    def gpu_sources(self) -> dict[str, str]:
        """Return the kernels for GPUs, file name -> text; rendered where the artifact is for another target."""
        from zenc.codegen.render import rendered_for

        return self.sources if self.target == "cuda" else rendered_for(self.plan, "cuda")

    def raw_module(self, arch: str | None = None) -> Any:
        """Return the kernels for a GPU ``arch`` (sm_90; None: the current device's) as a ``cupy.RawModule``.

        Their names and arguments are on the page ``docs/reference/kernels.md``. Raises as
        ``zenc.codegen.build.gpu_kernels`` does.
        """
        from zenc.codegen.build.gpu_kernels import raw_module

        return raw_module(self.gpu_sources(), self.cubins, arch)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write the artifact to ``directory`` (made if need be); the manifest comes last.

        Raises ArtifactError (``artifact-not-written``) where it can't be written.
        """
        with writing("the artifact", directory) as target:
            (target / "sources").mkdir(parents=True, exist_ok=True)
            for name, content in self.files().items():
                write_bytes(target / name, content)
            for number, candidate in enumerate(self.choosing.candidates.values() if self.choosing else ()):
                candidate.save(target / CANDIDATES / str(number))
            write_bytes(target / MANIFEST, (json.dumps(self.manifest, indent=2) + "\n").encode())
        return target

    def ensure_size(self, size: int) -> None:
        """Raise ArtifactError (``wrong-size``) unless the artifact serves ``size`` ranks."""
        if self.choosing:
            self.choosing.able(size)
        elif self.plan.size not in (None, size):
            made_for = count(self.plan.size or 0, "rank")
            message = f"{self.plan.scheme} was compiled for {made_for}, and this group has {size}"
            help = f"compile it with --ranks {size}, or without --ranks for any number"
            raise ArtifactError(Diagnostic("wrong-size", message, help=help))


@contextmanager
def writing(what: str, directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Turn a failure to write ``what`` to ``directory`` into ArtifactError ``artifact-not-written``."""
    try:
        if not os.fspath(directory):  # which pathlib takes for the current directory
            raise OSError("its path is empty")
        yield Path(directory)
    except OSError as error:
        message = f"can't write {what} to {os.fspath(directory) or repr('')}: {error.strerror or error}"
        raise ArtifactError(Diagnostic("artifact-not-written", message, help="choose another directory")) from error


def load_artifact(directory: str | os.PathLike[str]) -> Artifact:
    """Return the artifact that ``save`` wrote to ``directory``.

    Raises ArtifactError: ``not-an-artifact``, ``artifact-damaged`` (cut short or edited) or ``other-version``.
    """
    return load_within(Path(directory), Allowance())


@dataclass(slots=True)
class Allowance:
    """Limits on the rest of an artifact that may still be read: ``bytes``, ``files``, and ``artifacts``.

    Names and links can lead to one file many times.
    """

    bytes: int = MOST_BYTES
    files: int = MOST_FILES
    artifacts: int = MOST_ARTIFACTS

    def take(self, **amounts: int) -> None:
        """Use up ``amounts`` by name; raises ValueError where too little is left."""
        for name, amount in amounts.items():
            left = getattr(self, name) - amount
            if left < 0:
                raise ValueError(f"more {name} than any")
            setattr(self, name, left)


def load_within(where: Path, left: Allowance, nested: bool = False) -> Artifact:
    """Load as ``load_artifact`` does, within the limits ``left`` of a larger artifact; ``nested``: as a candidate."""
    manifest = read_object(where, MANIFEST, left)
    ensure_own(ARTIFACT, manifest, where, _again(where, manifest, left))
    try:
        left.take(artifacts=1)
        if nested and "choice" in manifest:
            raise ValueError("a choice in a choice")
        return _read(where, manifest, left)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise damaged(where, f"its manifest lacks what it should say ({error})") from error


def _read(where: Path, manifest: dict[str, Any], left: Allowance) -> Artifact:
    content = {name: _checked(where, name, digest, left) for name, digest in manifest["files"].items()}
    cubins = tuple(_cubin(content, arch, made) for arch, made in manifest["cubins"].items())
    files = {name: text.decode() for name, text in content.items()}
    names = Codec().item(manifest, "texts", tuple[str, ...])
    texts = tuple(Source(name, files[f"sources/{index}.zen"]) for index, name in enumerate(names))
    told = parse_json(content[PLAN_FILE])
    if isinstance(told, dict):
        PLAN.ensure(told, str(where), _again(where, manifest, left))
    plan = plan_from_json(told, texts)
    generated = {name: text for name, text in files.items() if name != PLAN_FILE and "/" not in name}
    sequences = {name: generated.pop(name) for name in (CODE, DATA) if name in generated}
    target = Codec().item(manifest, "target", Literal["cpu", "cuda", "plan"])
    proved = Codec().item(manifest, "proved_sizes", tuple[int, ...])
    made = Artifact(plan, target, generated, texts, proved, cubins, _choosing(where, manifest, left), sequences)
    again = made.manifest
    if stray := [key for key in again | manifest if again.get(key) != manifest.get(key)]:
        raise damaged(where, f"its manifest and its files differ in {stray[0]!r}")
    return made


def _choosing(where: Path, manifest: dict[str, Any], left: Allowance) -> Choosing | None:
    """Load the candidates, each in a directory of its own, of a scheme that chooses."""
    told = manifest.get("choice")
    if told is None:
        return None
    places = enumerate(told["candidates"])
    found = {name: load_within(where / CANDIDATES / str(at), left, nested=True) for at, name in places}
    if not found or manifest["digest"] != next(iter(found.values())).plan.digest:
        raise damaged(where, "its first candidate is not what it runs first")
    settings = Codec().item(told, "settings", Settings)
    if settings.unsound or any(artifact.target != manifest["target"] for artifact in found.values()):
        raise damaged(where, "its settings are none of a choice, or a candidate is for another target")
    return Choosing(str(told["name"]), settings, found)


def _cubin(content: dict[str, bytes], arch: str, made: dict[str, Any]) -> Cubin:
    capability = named(arch)
    if capability is None:
        raise ValueError(f"{arch!r} is no architecture")
    return Cubin(capability, content.pop(f"{arch}{CUBIN_SUFFIX}"), str(made["compiler"]), int(made["cuda"]))


def read_object(where: Path, name: str, left: Allowance) -> dict[str, Any]:
    """Return the JSON object in the file ``name`` of the directory ``where``; raises ArtifactError without one."""
    path = where / name
    if not os.path.isfile(path):
        message = f"{where} is no compiled scheme: it has no {name}"
        raise ArtifactError(Diagnostic("not-an-artifact", message, help=f"zenc compile SCHEME.zen -o {where}"))
    try:
        data: dict[str, Any] = exactly(parse_json(_bytes(path, left)), dict)
    except (OSError, ValueError) as error:
        raise damaged(where, f"its {name} can't be read: {first_line(error)}") from error
    return data


def ensure_own(form: VersionedForm, manifest: dict[str, Any], where: Path, again: str) -> None:
    """Raise ArtifactError (``other-version``) unless this zenc wrote the ``manifest``: generated code fits no other."""
    form.ensure(manifest, str(where), again)
    if manifest.get("zenc") != __version__:
        message = f"{where} was compiled by zenc {manifest.get('zenc')!s:.40}, and this is {__version__}"
        raise ArtifactError(Diagnostic("other-version", message, help=again))


def _again(where: Path, manifest: dict[str, Any], left: Allowance) -> str:
    """Return the command that compiles the scheme of ``manifest`` again: from its text, or the copy in the artifact."""
    texts, size, target, cubins = (manifest.get(key) for key in ("texts", "size", "target", "cubins"))
    first = texts[0] if isinstance(texts, list) and texts and isinstance(texts[0], str) else ""
    words = ["zenc", "compile", first if os.path.isfile(first) else str(where / "sources" / "0.zen")]
    words += ["--ranks", str(size)] if isinstance(size, int) else []
    words += ["--target", target] if isinstance(target, str) and target != "cpu" else []
    words += ["--arch", ",".join(cubins) or "none"] if target == "cuda" and isinstance(cubins, dict) else []
    return f"compile it again: {shlex.join([*words, *_settings(where, manifest, left), '-o', str(where)])}"


def _settings(where: Path, manifest: dict[str, Any], left: Allowance) -> list[str]:
    try:
        plan = read_object(where, PLAN_FILE, left)
        told = plan.get("link")
        link = [f"--link={10**12 // told} B/s"] if isinstance(told, int) and told else []
        given = {} if "choice" in manifest else plan["parameters"]
        return link + [f"--set={name}={value}" for name, value in given.items() if isinstance(value, int | float)]
    except (ArtifactError, KeyError, AttributeError):
        return []


def _checked(where: Path, name: str, digest: str, left: Allowance) -> bytes:
    """Return the content of a file of the artifact, which must lie inside it and be unchanged."""
    path = where / name
    if Path(os.path.realpath(where)) not in Path(os.path.realpath(path)).parents:  # of a loop of links, too
        raise damaged(where, f"{name} lies outside of it")
    try:
        content = _bytes(path, left)
    except (OSError, ValueError) as error:
        raise damaged(where, f"{name} is missing or can't be read") from error
    if _sha256(content) != digest:
        raise damaged(where, f"{name} was changed or cut short after it was compiled")
    return content


def _bytes(path: Path, left: Allowance) -> bytes:
    content = read_bytes(path, left.bytes)
    left.take(bytes=len(content), files=1)
    return content


def damaged(where: Path, why: str) -> ArtifactError:
    """Return the error for a directory that is not as it was written."""
    return ArtifactError(Diagnostic("artifact-damaged", f"{where} is damaged: {why}", help="compile the scheme again"))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
