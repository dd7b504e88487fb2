"""Clock of a model's passes: the time of the forward pass, and of each gradient in the backward pass.

    PassTimes = forward?  of_modules  began?  ready           # of one step
    forward      the span of the model's own forward pass; in it, of the modules that hold parameters
    began the gradient of the model's output comes; or, where no output can be inspected, the first gradient
    ready        of each parameter: its gradient is whole on this rank, and DDP may send it

The hooks of a forward pass go when it ends, so the user's module carries nothing between steps. On GPUs moments are
events on the stream that computes, so the host is not waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from zenc.torch.parameters import ForwardWatch

Moment: TypeAlias = "float | torch.cuda.Event"
"""A point of time: seconds on the clock of the host, or an event on the stream of a GPU."""
Span: TypeAlias = tuple[Moment, Moment]


def moment(tensor: torch.Tensor) -> Moment:
    """Return the moment now of work on ``tensor``, of any shape: an event on its GPU's stream, or the host's clock."""
    if not tensor.is_cuda:
        return time.perf_counter()
    make: Callable[..., torch.cuda.Event] = torch.cuda.Event
    event = make(enable_timing=True)
    event.record(torch.cuda.current_stream(tensor.device))
    return event


def between(first: Moment, last: Moment) -> float:
    """Return the seconds from ``first`` to ``last``."""
    if isinstance(first, float) and isinstance(last, float):
        return last - first
    assert not isinstance(first, float) and not isinstance(last, float)
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3


@dataclass(slots=True)
class PassTimes:
    """Moments of a step. ``of_modules``: parameter name -> spans of the modules that hold it; ``ready``: by name."""

    forward: Span | None = None
    of_modules: dict[str, list[Span]] = field(default_factory=dict)
    began: Moment | None = None
    ready: dict[str, Moment] = field(default_factory=dict)

    @property
    def seconds_forward(self) -> float | None:
        """Return seconds of the forward pass; None where no pass was seen."""
        return between(*self.forward) if self.forward else None

    def seconds_ready(self) -> dict[str, float]:
        """Return, by parameter, seconds from the begin of the backward pass until its gradient was ready."""
        began = self.began
        return {} if began is None else {name: max(0.0, between(began, at)) for name, at in self.ready.items()}

    def seconds_of_modules(self) -> dict[str, float]:
        """Return, by parameter, seconds of the forward passes of the modules that hold it."""
        return {name: sum(between(*span) for span in spans) for name, spans in self.of_modules.items()}


class PassClock(ForwardWatch):
    """Clock of the passes of ``ddp_model``, whose ``parameters`` have names; copied with its model it watches nothing.

    ``looks_closer``: returns whether modules are timed one by one in the forward pass that begins.
    """

    def __init__(
        self,
        ddp_model: DistributedDataParallel | None = None,
        parameters: Mapping[str, torch.Tensor] | None = None,
        looks_closer: Callable[[], bool] = lambda: False,
    ) -> None:
        self._looks_closer = looks_closer
        self._now = PassTimes()
        self._forward_ended = False
        """True once a forward pass has ended since the last backward pass began."""
        named: Mapping[str, Any] = parameters or {}
        super().__init__(ddp_model if named else None)
        if ddp_model is not None and named:
            self._any = next(iter(named.values()))
            self._names = {id(parameter): name for name, parameter in named.items()}
            for name, each in named.items():
                self._around.append(each.register_post_accumulate_grad_hook(partial(self._ready, name)))

    def taken(self) -> PassTimes:
        """Return the moments of the step that has ended, and begin a new one."""
        taken, self._now = self._now, PassTimes()
        return taken

    def _begin(self, _: nn.Module, __: Any) -> None:
        if (watched := self._ddp()) is None or not torch.is_grad_enabled():
            return
        model = watched.module
        self._now.of_modules.clear()
        open: dict[str, list[Moment]] = {}
        self._watch(model, ("",), open)
        for module in model.modules() if self._looks_closer() else ():
            own = tuple(self._names[id(p)] for p in module.parameters(recurse=False) if id(p) in self._names)
            if own:
                self._watch(module, own, open)

    def _watch(self, module: nn.Module, names: tuple[str, ...], open: dict[str, list[Moment]]) -> None:
        """Time the calls of ``module`` for the parameters ``names``; "" stands for the whole model."""

        def begins(_: nn.Module, __: Any) -> None:
            if not torch.compiler.is_compiling():
                for name in names:
                    open.setdefault(name, []).append(moment(self._any))

        def ends(_: nn.Module, __: Any, ___: Any) -> None:
            if not torch.compiler.is_compiling():
                for name in names:
                    if begun := open.get(name):
                        self._now.of_modules.setdefault(name, []).append((begun.pop(), moment(self._any)))

        self._within += [module.register_forward_pre_hook(begins), module.register_forward_hook(ends)]

    def _end(self, _: nn.Module, __: Any, output: Any) -> None:
        self._remove_within()
        if whole := self._now.of_modules.pop("", None):
            self._now.forward = whole[-1]
        if torch.is_grad_enabled() and self._ddp() is not None:  # a copy has none
            self._forward_ended = True
            leaves: list[Any] = [each for each in tree_leaves(output) if isinstance(each, torch.Tensor)]
            for leaf in (each for each in leaves if each.requires_grad):
                leaf.register_hook(self._backward_begins)

    def _backward_begins(self, _: torch.Tensor) -> None:
        if self._forward_ended:  # by the first of several outputs
            self._forward_ended = False
            self._now.began = moment(self._any)
            self._now.ready.clear()

    def _ready(self, name: str, parameter: torch.Tensor) -> None:
        self._backward_begins(parameter)
        self._now.ready[name] = moment(parameter)
