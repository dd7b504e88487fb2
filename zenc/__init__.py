"""zenc, a compiler for gradient synchronisation: sparse all-reduce schemes, declared, proved and compiled.

    import zenc
    handle = zenc.attach(ddp_model, "auto")    # one line in a DDP script
    collective = zenc.load("auto")             # or by hand: collective.all_reduce(tensor)

Names are imported at first use, so that ``import zenc`` stays light: torch comes only with the names that need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from zenc._version import __version__
from zenc.errors import (
    ArtifactError,
    BuildError,
    CacheError,
    CostError,
    Diagnostic,
    DrawingError,
    InternalError,
    SchemeError,
    SchemeSyntaxError,
    SynchronisationError,
    TensorError,
    TopologyError,
    VerificationError,
    ZencError,
)

if TYPE_CHECKING:
    from zenc.api import check, compile, compile_text, explain, load, schemes
    from zenc.averaging.api import load_averager
    from zenc.averaging.averager import Averager
    from zenc.codegen.artifact import Artifact
    from zenc.forecast import advise, simulate, simulate_step, tune, tune_strategy
    from zenc.kinds import open
    from zenc.runtime.call.collective import Collective
    from zenc.runtime.choice.profiler import Profiler
    from zenc.tables.fsdp import FsdpAllReduceHook, FsdpReduceScatter
    from zenc.tables.optimizer import ShardedTableOptimizer
    from zenc.tables.publish import Published, broadcast_update
    from zenc.tables.replicas import ReplicaAverage
    from zenc.tables.row_optimizers import LazyAdamW, RowwiseAdagrad
    from zenc.topology.load import load_topology
    from zenc.topology.model import Topology
    from zenc.torch.attach import attach
    from zenc.torch.clip import clip_grad_norm_
    from zenc.torch.dry_run import DryRun
    from zenc.torch.handle import Attachment
    from zenc.torch.hook import ZencState, noop_hook, zenc_hook

_NAMES = {
    "zenc.api": ("check", "compile", "compile_text", "explain", "load", "schemes"),
    "zenc.averaging.api": ("load_averager",),
    "zenc.averaging.averager": ("Averager",),
    "zenc.codegen.artifact": ("Artifact",),
    "zenc.forecast": ("advise", "simulate", "simulate_step", "tune", "tune_strategy"),
    "zenc.kinds": ("open",),
    "zenc.runtime.call.collective": ("Collective",),
    "zenc.runtime.choice.profiler": ("Profiler",),
    "zenc.tables.fsdp": ("FsdpAllReduceHook", "FsdpReduceScatter"),
    "zenc.tables.optimizer": ("ShardedTableOptimizer",),
    "zenc.tables.publish": ("Published", "broadcast_update"),
    "zenc.tables.replicas": ("ReplicaAverage",),
    "zenc.tables.row_optimizers": ("LazyAdamW", "RowwiseAdagrad"),
    "zenc.topology.load": ("load_topology",),
    "zenc.topology.model": ("Topology",),
    "zenc.torch.attach": ("attach",),
    "zenc.torch.clip": ("clip_grad_norm_",),
    "zenc.torch.dry_run": ("DryRun",),
    "zenc.torch.handle": ("Attachment",),
    "zenc.torch.hook": ("ZencState", "noop_hook", "zenc_hook"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Artifact",
    "ArtifactError",
    "Attachment",
    "Averager",
    "BuildError",
    "CacheError",
    "Collective",
    "CostError",
    "Diagnostic",
    "DrawingError",
    "DryRun",
    "FsdpAllReduceHook",
    "FsdpReduceScatter",
    "InternalError",
    "LazyAdamW",
    "Profiler",
    "Published",
    "ReplicaAverage",
    "RowwiseAdagrad",
    "SchemeError",
    "SchemeSyntaxError",
    "ShardedTableOptimizer",
    "SynchronisationError",
    "TensorError",
    "Topology",
    "TopologyError",
    "VerificationError",
    "ZencError",
    "ZencState",
    "__version__",
    "advise",
    "attach",
    "broadcast_update",
    "check",
    "clip_grad_norm_",
    "compile",
    "compile_text",
    "explain",
    "load",
    "load_averager",
    "load_topology",
    "noop_hook",
    "open",
    "schemes",
    "simulate",
    "simulate_step",
    "tune",
    "tune_strategy",
    "zenc_hook",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'zenc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
