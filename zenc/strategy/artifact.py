"""Compiled strategies: the artifacts of tensors, in memory or in a directory.

    CompiledStrategy = name groups CompiledRule+
    CompiledRule     = tensors device artifact

directory/
    strategy.json     versions, name, groups, and each rule's tensors, device and directory of its scheme
    */                a compiled scheme each, as ``zenc.codegen.artifact`` has them
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zenc._version import __version__
from zenc.codegen.artifact import Allowance, Artifact, damaged, ensure_own, load_within, read_object
from zenc.common.resources import write_bytes
from zenc.common.versioned import STRATEGY
from zenc.errors import ArtifactError, Diagnostic, Spanned
from zenc.strategy.model import (
    AllOthers,
    Buckets,
    Cuts,
    Device,
    Fused,
    Groups,
    LargerThan,
    NamedLike,
    SearchedCuts,
    TensorSet,
)

MANIFEST = "strategy.json"
GROUPS: Mapping[str, type[Groups]] = {"buckets": Buckets, "cuts": Cuts, "search": SearchedCuts, "fused": Fused}
"""Kinds of groups by their names in a file."""
TENSORS: Mapping[str, type[TensorSet]] = {"named": NamedLike, "above": LargerThan, "others": AllOthers}
"""Kinds of sets of tensors by their names in a file."""


@dataclass(frozen=True, slots=True)
class CompiledRule(Spanned):
    """A set of tensors, the device that sums them, and the artifact by which it does."""

    tensors: TensorSet
    device: Device
    artifact: Artifact


@dataclass(frozen=True, slots=True)
class CompiledStrategy(Spanned):
    """Rules with their artifacts, the last of which is about all remaining tensors, and groups of tensors."""

    name: str
    groups: Groups
    rules: tuple[CompiledRule, ...]

    def matching(self, name: str, bytes: int) -> CompiledRule:
        """Return the rule of the tensor ``name``, whose gradient has ``bytes`` bytes: the first that matches."""
        return next(rule for rule in self.rules if rule.tensors.matches(name, bytes))

    def save(self, directory: str | os.PathLike[str], names: Mapping[str, Artifact]) -> dict[str, Path]:
        """Write each artifact of ``names`` to a directory of that name within ``directory``, and the rules beside them.

        Returns the directory of each. Raises ArtifactError (``artifact-not-written``) where they can't be written.
        """
        root = Path(directory)
        saved = {name: artifact.save(root / name) for name, artifact in names.items()}
        where = {id(artifact): name for name, artifact in names.items()}
        told = {
            **STRATEGY.head,
            "zenc": __version__,
            "strategy": self.name,
            "groups": _named(self.groups, GROUPS),
            "rules": [
                {
                    "tensors": _named(rule.tensors, TENSORS),
                    "device": rule.device,
                    "directory": where[id(rule.artifact)],
                    "digest": rule.artifact.digest,
                }
                for rule in self.rules
            ],
        }
        try:
            write_bytes(root / MANIFEST, (json.dumps(told, indent=2) + "\n").encode())
        except OSError as error:
            message = f"can't write the strategy to {root}: {error.strerror or error}"
            raise ArtifactError(Diagnostic("artifact-not-written", message, help="choose another directory")) from error
        return saved


def is_compiled_strategy(directory: str | os.PathLike[str]) -> bool:
    """Return whether a strategy was compiled to ``directory``."""
    return (Path(directory) / MANIFEST).is_file()


def load_compiled_strategy(directory: str | os.PathLike[str]) -> CompiledStrategy:
    """Return the strategy that ``CompiledStrategy.save`` wrote to ``directory``, with its artifacts, each read once.

    Raises ArtifactError: ``not-an-artifact``, ``artifact-damaged`` (cut short or edited) or ``other-version``.
    """
    where, left = Path(directory), Allowance()
    told = read_object(where, MANIFEST, left)
    again = f"compile its text again: zenc compile FILE.zen -o {shlex.quote(str(where))}"
    ensure_own(STRATEGY, told, where, again)
    try:
        return _read(where, told, left)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise damaged(where, f"its {MANIFEST} lacks what it should say ({error})") from error


def _read(where: Path, told: dict[str, Any], left: Allowance) -> CompiledStrategy:
    names = dict.fromkeys(_inside(each) for each in told["rules"])
    artifacts = {name: load_within(where / name, left) for name in names}
    digests = {name: artifact.digest for name, artifact in artifacts.items()}
    if stray := next((each for each in told["rules"] if each["digest"] != digests[each["directory"]]), None):
        raise damaged(where, f"the scheme in {stray['directory']} is not the one of its rule")
    rules = tuple(_rule(each, artifacts[each["directory"]]) for each in told["rules"])
    if not rules or not isinstance(rules[-1].tensors, AllOthers):
        raise damaged(where, "its last rule is not about all others")
    return CompiledStrategy(str(told["strategy"]), _made(told["groups"], GROUPS), rules)


def _inside(rule: dict[str, Any]) -> str:
    name = rule["directory"]
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{name!r} is no directory of a scheme")
    return name


def _rule(told: dict[str, Any], artifact: Artifact) -> CompiledRule:
    device: Device = told["device"]
    if device not in ("", "gpu", "host"):
        raise ValueError(f"{device!r} is no device")
    return CompiledRule(_made(told["tensors"], TENSORS), device, artifact)


def _named(node: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    name = next(name for name, kind in kinds.items() if type(node) is kind)
    return {"is": name, **{key: value for key, value in asdict(node).items() if key != "span"}}


def _made(told: dict[str, Any], kinds: Mapping[str, type]) -> Any:
    """Return the node that ``_named`` described; raises ValueError for values of wrong types."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items() if key != "is"}
    node = kinds[told["is"]](**given)
    numbers = [value for value in given.values() if not isinstance(value, str)]
    flat = [each for value in numbers for each in (value if isinstance(value, tuple) else (value,))]
    if not all(each is None or (isinstance(each, int | float) and each >= 0) for each in flat):
        raise ValueError(f"{told!s:.80} is none")
    return node
