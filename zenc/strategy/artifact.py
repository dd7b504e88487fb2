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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenc._version import __version__
from zenc.codegen.artifact import Allowance, Artifact, damaged, ensure_own, load_within, read_object, writing
from zenc.common.json_codec import Codec
from zenc.common.resources import write_bytes
from zenc.common.versioned import STRATEGY
from zenc.errors import Spanned
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
_CODEC = Codec(
    {
        Buckets: ("is=buckets",),
        Cuts: ("is=cuts", "ends"),
        SearchedCuts: ("is=search", "most"),
        Fused: ("is=fused", "bytes"),
        NamedLike: ("is=named", "pattern"),
        LargerThan: ("is=above", "bytes"),
        AllOthers: ("is=others",),
    }
)


@dataclass(frozen=True, slots=True)
class _RuleEntry:
    """A rule as the file has it, with the directory of its artifact."""

    tensors: TensorSet
    device: Device
    directory: str
    digest: str


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
        where = {id(artifact): name for name, artifact in names.items()}
        entries = [
            _RuleEntry(rule.tensors, rule.device, where[id(rule.artifact)], rule.artifact.digest) for rule in self.rules
        ]
        told = {
            **STRATEGY.head,
            "zenc": __version__,
            "strategy": self.name,
            "groups": _CODEC.encode(self.groups),
            "rules": _CODEC.encode(entries),
        }
        with writing("the strategy", directory) as root:
            saved = {name: artifact.save(root / name) for name, artifact in names.items()}
            write_bytes(root / MANIFEST, (json.dumps(told, indent=2) + "\n").encode())
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
    entries: tuple[_RuleEntry, ...] = _CODEC.item(told, "rules", tuple[_RuleEntry, ...])
    groups, title = _CODEC.item(told, "groups", Groups), _CODEC.item(told, "strategy", str)
    _ensure_counts(groups, *(entry.tensors for entry in entries))
    names = dict.fromkeys(_inside(entry.directory) for entry in entries)
    artifacts = {name: load_within(where / name, left) for name in names}
    if stray := next((each for each in entries if each.digest != artifacts[each.directory].digest), None):
        raise damaged(where, f"the scheme in {stray.directory} is not the one of its rule")
    rules = tuple(CompiledRule(each.tensors, each.device, artifacts[each.directory]) for each in entries)
    if not rules or not isinstance(rules[-1].tensors, AllOthers):
        raise damaged(where, "its last rule is not about all others")
    return CompiledStrategy(title, groups, rules)


def _ensure_counts(*nodes: Groups | TensorSet) -> None:
    for node in nodes:
        if min((*getattr(node, "ends", ()), getattr(node, "most", 0), getattr(node, "bytes", 0) or 0)) < 0:
            raise ValueError(f"{node} has a number less than 0")


def _inside(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no directory of a scheme")
    return name
