"""Parameters that a scheme can serve: those with sparse gradients, and dense ones that are asked for; and their use.

DDP can't reduce a sparse parameter that took no part in a forward pass: it waits for a gradient that never comes, or
fails with "Expected sparse gradient to be defined" (pytorch/pytorch#80496). ``UnusedWatch`` reports it early and by
name:

    before a forward pass     a hook on each module that looks up a sparse parameter
    after it                  the hooks go; a parameter of which no module was called is sought in the graph

So the user's module carries nothing between steps, and is copied and pickled as if nothing was attached.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from zenc.common.wording import dotted_like
from zenc.errors import Diagnostic, SchemeError, TensorError
from zenc.plan.ir import Plan
from zenc.scheme.compression import LowRank
from zenc.strategy.model import is_like

log = logging.getLogger("zenc")

NamedParameters: TypeAlias = Mapping[str, nn.Parameter]


def ensure_ddp(model: object) -> None:
    """Raise SchemeError (``not-ddp``) unless ``model`` is wrapped in DistributedDataParallel, and in nothing else."""
    if isinstance(model, DistributedDataParallel):
        return
    message = f"attach takes a model wrapped in DistributedDataParallel; this one is of class {type(model).__name__}"
    help = "wrap it first: ddp = DistributedDataParallel(model)"
    if isinstance(getattr(model, "_orig_mod", None), DistributedDataParallel):
        help = "it is compiled: attach to the wrapped model first, then compile that: torch.compile(ddp)"
    elif not isinstance(model, nn.Module):
        help = "it is no torch.nn.Module; attach takes ddp = DistributedDataParallel(model)"
    raise SchemeError(Diagnostic("not-ddp", message, help=help))


def trained_parameters(ddp_model: DistributedDataParallel) -> NamedParameters:
    """Return the parameters whose gradients DDP averages, by name: none that it ignores, or did not wrap as trained."""
    ignored = ddp_model.parameters_to_ignore
    named = {n: each for n, each in ddp_model.module.named_parameters() if each.requires_grad and n not in ignored}
    found = {name: each for name, each in named.items() if _has_lasting_node(each)}
    if late := named.keys() - found.keys():
        told = "zenc.attach: DDP does not sum %s: frozen, or not there, when it wrapped the model"
        log.warning(told, ", ".join(sorted(late)))
    return found


def _has_lasting_node(parameter: nn.Parameter) -> bool:
    """Return whether the node that adds up the gradient of ``parameter`` outlives graphs, as DDP's reducer holds it.

    Then a note in the node is still there when it is asked for again.
    """

    def notes() -> Any:
        with torch.inference_mode(False):
            return torch.autograd.graph.get_gradient_edge(parameter).node.metadata

    notes()["zenc"] = True
    return "zenc" in notes()


def model_told(ddp_model: DistributedDataParallel, trained: NamedParameters, sparse: Collection[str]) -> dict[str, str]:
    """Return the facts that decide about the gradients of ``ddp_model``, as its ranks compare them.

    ``trained`` are its parameters, ``sparse`` the names of those with sparse gradients.
    """
    modes = {name: str(getattr(ddp_model, name)) for name in ("find_unused_parameters", "static_graph")}
    parameters = {
        f"parameter {number}": f"{name} {list(each.shape)} {each.dtype}{' (sparse)' if name in sparse else ''}"
        for number, (name, each) in enumerate(trained.items())
    }
    return {**modes, **parameters}


def sparse_parameters(model: nn.Module, trained: NamedParameters) -> dict[str, list[nn.Module]]:
    """Return the modules of ``model`` that use each of ``trained`` with sparse gradients, by name."""
    owners: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(module)
    found: dict[str, list[nn.Module]] = {}
    for name, parameter in trained.items():
        users = owners.get(id(parameter), [])
        sparse = [module for module in users if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse]
        if sparse and len(sparse) != len(users):
            others = ", ".join(type(module).__name__ for module in users if module not in sparse)
            message = f"'{name}' is a sparse embedding's and also used by {others}, which gives it a dense gradient"
            help = "use sparse=False for this embedding, or weights of its own for the other module"
            raise SchemeError(Diagnostic("tied-to-dense", message, help=help))
        if sparse:
            found[name] = [*sparse]
    return found


LEAST_VALUES = 1024
"""The least values of a dense gradient that goes through a lossy scheme with all others; smaller ones stay with DDP.

Those are biases and norms, which training is sensitive to, and which all together are few bytes. A projection sums
them whole, and they go with the others.
"""


def all_dense_parameters(
    trained: NamedParameters, exclude: Collection[str], sparse: Collection[str]
) -> NamedParameters:
    """Return those of ``trained`` with dense gradients that no pattern excludes, by name, in the order of the model.

    A pattern of ``exclude`` is a name, in which ``*`` stands for anything. Raises SchemeError (``unknown-parameter``)
    for one that no name matches.
    """
    known = {name: each for name, each in trained.items() if name not in sparse}
    for pattern in exclude:
        if not any(is_like(name, pattern) for name in known):
            message = f"the model has no parameter with a dense gradient that is called '{pattern}'"
            raise SchemeError(Diagnostic("unknown-parameter", message, help=_advice(pattern, known)))
    return {name: each for name, each in known.items() if not any(is_like(name, each) for each in exclude)}


def _advice(name: str, known: Collection[str]) -> str:
    return dotted_like(name, known) or "model.named_parameters() has the names"


def dense_parameters(trained: NamedParameters, names: Collection[str], sparse: Collection[str]) -> NamedParameters:
    """Return those of ``trained`` that the caller asks for, which are dense, by name."""
    for name in names:
        if name in sparse:
            message = f"'{name}' has sparse gradients, which go through the scheme anyway"
            raise SchemeError(Diagnostic("sparse-already", message, help="leave it out of dense="))
        if name not in trained:
            message = f"DDP has no parameter '{name}' of the model to train"
            help = _advice(name, [each for each in trained if each not in sparse])
            raise SchemeError(Diagnostic("unknown-parameter", message, help=help))
    return {name: trained[name] for name in names}


@dataclass(frozen=True, slots=True)
class Served:
    """Parameters whose gradients go through a scheme: ``sparse`` ones; dense ones by ``rows``, or ``together``."""

    sparse: tuple[str, ...]
    rows: Mapping[str, torch.Tensor]
    together: Mapping[str, torch.Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return (*self.sparse, *self.rows, *self.together)


def served_by(
    plan: Plan, sparse: tuple[str, ...], named: NamedParameters, every: NamedParameters, least: int | None
) -> Served:
    """Return the parameters that the scheme of ``plan`` sums: ``sparse``, ``named`` dense, and ``every`` other ones.

    A scheme that selects or keeps residuals sums dense gradients alone. Raises SchemeError (``needs-dense``) without
    any.
    """
    if least is None:
        losing = [each for phase in plan.phases for each in (*phase.selects, phase.code) if each]
        least = 1 if all(isinstance(each, LowRank) for each in losing) else LEAST_VALUES
    together = {name: each for name, each in every.items() if each.numel() >= least}
    if not takes_dense_only(plan):
        return Served(sparse, named, together)
    if not named and not together:
        message = f"{plan.scheme} selects from dense gradients, or keeps what they lose, and is given none"
        help = "dense=True gives it all but the small ones; dense=[names] some"
        if every:
            most = max(each.numel() for each in every.values())
            help = f"none has least_values={least} values: give least_values={most} or less, or names as dense=[...]"
        raise SchemeError(Diagnostic("needs-dense", message, help=help))
    if sparse:
        log.warning("zenc.attach: %s sums dense gradients; %s stay with DDP", plan.scheme, ", ".join(sparse))
    return Served((), {}, {**named, **together})


def takes_dense_only(plan: Plan) -> bool:
    """Return whether a sparse gradient can't go through ``plan``: something is selected, or losses are kept."""
    return plan.feedback is not None or any(phase.selects for phase in plan.phases)


class ForwardWatch:
    """A watch of the forward passes of ``ddp_model``; None: of none. ``others`` are hooks that go when it goes.

    ``_begin`` and ``_end`` are called around a pass. Copied or pickled with its model it watches nothing.
    """

    _begin: Callable[[nn.Module, Any], None]
    _end: Callable[[nn.Module, Any, Any], None]

    def __init__(self, ddp_model: DistributedDataParallel | None, others: Iterable[RemovableHandle] = ()) -> None:
        self._within: list[RemovableHandle] = []
        """Hooks that go when a forward pass ends, so that the user's module carries nothing between steps."""
        self._around = list(others)
        self._ddp: Callable[[], DistributedDataParallel | None] = lambda: None
        if ddp_model is not None:
            self._ddp = weakref.ref(ddp_model)
            ends = ddp_model.register_forward_hook(self._end, always_call=True)
            self._around += [ddp_model.register_forward_pre_hook(self._begin), ends]

    def __reduce__(self) -> tuple[type[ForwardWatch], tuple[()]]:
        return type(self), ()

    def remove(self) -> None:
        """Remove all hooks from the model."""
        self._remove_within()
        for handle in self._around:
            handle.remove()
        self._around = []

    def _remove_within(self) -> None:
        for handle in self._within:
            handle.remove()
        self._within = []


class UnusedWatch(ForwardWatch):
    """A watch for a forward pass of ``ddp_model`` without one of ``sparse``, for TensorError (``unused-parameter``).

    ``sparse``: the name of a parameter -> the modules that use it. ``others``: hooks that go when it goes. Copied or
    pickled with its model it watches nothing.
    """

    def __init__(
        self,
        ddp_model: DistributedDataParallel | None = None,
        sparse: Mapping[str, Sequence[nn.Module]] | None = None,
        others: Iterable[RemovableHandle] = (),
    ) -> None:
        self._sparse = {name: tuple(modules) for name, modules in (sparse or {}).items()}
        self._called: set[int] = set()
        super().__init__(ddp_model if self._sparse else None, others)

    def _begin(self, _: nn.Module, __: Any) -> None:
        self._called.clear()
        for modules in self._sparse.values():
            self._within += [module.register_forward_pre_hook(self._seen) for module in modules]

    def _seen(self, called: nn.Module, _: Any) -> None:
        if not torch.compiler.is_compiling():  # a compiled forward pass has a graph of few nodes, which is looked into
            self._called.add(id(called))

    def _end(self, _: nn.Module, __: Any, output: Any) -> None:
        self._remove_within()
        idle = {name: modules for name, modules in self._sparse.items() if not self._called & {id(m) for m in modules}}
        ddp_model = self._ddp() if idle and torch.is_grad_enabled() else None
        if ddp_model is not None and ddp_model.require_backward_grad_sync:
            _ensure_in_graph(idle, output)


def _ensure_in_graph(idle: Mapping[str, Sequence[nn.Module]], output: Any) -> None:
    """Raise for idle parameters; a module that was not called may have lent its weight to a function."""
    roots = [leaf.grad_fn for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.grad_fn]
    if not roots:
        return  # nothing to differentiate, or an output that can't be looked into
    reached = _leaves(roots)
    for name, modules in idle.items():
        weights = {id(p) for module in modules for p in module.parameters(recurse=False)}
        if not weights & reached:
            raise TensorError(_unused(name))


def _leaves(roots: list[Any]) -> set[int]:
    seen, waiting = set[Any](), list(roots)
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return {id(node.variable) for node in seen if hasattr(node, "variable")}


def _unused(name: str) -> Diagnostic:
    message = f"the sparse parameter '{name}' took no part in this forward pass, so DDP would wait for its gradient"
    owner = name.rpartition(".")[0] or name
    help = (
        f"look up no row of it, which gives an empty gradient: "
        f"out = out + {owner}(torch.empty(0, 1, dtype=torch.long)).sum(); or freeze it before DDP wraps the model"
    )
    return Diagnostic("unused-parameter", message, help=help)
