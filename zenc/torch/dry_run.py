"""A dry run: DDP synchronises its own way, and the contents of its gradients and the time of steps are observed.

bucket              its hook is called, at the end of which gradients are under way    # DDP's own all-reduce
step                from the end of a backward pass to the end of the next: between the hooks of two last buckets
every k-th step the contents of each gradient are counted, with the other ranks for tables; this step is not timed, but
                    the forward passes of its modules are, one by one
"""

from __future__ import annotations

import os
import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from zenc.errors import CostError, Diagnostic
from zenc.runtime.call.layout import DTYPE_NAMES, layout_of
from zenc.runtime.choice.profiler import Profiler
from zenc.runtime.choice.sampling import PresenceSampler
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.load import agreement_in
from zenc.scheme.model import Unit
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile
from zenc.torch.bucket import Averaged
from zenc.torch.pass_clock import Moment, PassClock, PassTimes, between, moment
from zenc.torch.slot import Slot, own_way, release, take

SAMPLED_EVERY = 10
"""The period, in steps, of counting; the other steps are timed."""
ROWS_LOOKED_AT = 4096
"""Rows that are sampled of a gradient that is not a table's."""
MOST_STEPS = 10_000
MOST_PASSES = 100
"""Most steps whose moments of gradients are kept, each of timed ones and of sampled ones."""


@dataclass(slots=True)
class ObservedStep:
    """A backward pass: the time of each bucket's hook, of which the last ends the pass, and of its average."""

    called: list[Moment] = field(default_factory=list)
    done: dict[int, Moment] = field(default_factory=dict)
    sampled: bool = False
    ended: bool = False

    @property
    def is_timed(self) -> bool:
        """Return whether the step has ended, and had only DDP's own work."""
        return self.ended and not self.sampled and len(self.done) == len(self.called)


class Observer:
    """An observer of the gradients of a model while DDP averages them its own way.

    Args:
        group: DDP's own; default: all ranks.
        parameters: those that DDP averages, by name.
        tables: the names of the parameters whose holders are counted with the other ranks: all tables, dense ones too.
        profiler: the one that counts them, the same on all ranks.
        communicator: that of the ranks of ``group``.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        parameters: Mapping[str, torch.Tensor],
        tables: Iterable[str],
        profiler: Profiler,
        communicator: Communicator | None,
    ) -> None:
        self.group, self.profiler, self.communicator = group, profiler, communicator
        self.parameters = parameters
        self.tables = frozenset(tables)
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._steps: deque[ObservedStep] = deque(maxlen=MOST_STEPS)
        self.count = 0
        """The number of steps so far."""
        self._held: dict[str, list[float]] = {}
        self._layouts: dict[str, str] = {}
        self._marker = PresenceSampler(ROWS_LOOKED_AT)
        self.clock = PassClock()
        self._passes: tuple[deque[PassTimes], deque[PassTimes]] = (deque(maxlen=MOST_PASSES), deque(maxlen=MOST_PASSES))
        """The moments of steps that were timed, and of steps in which gradients were counted."""

    @property
    def counts_next(self) -> bool:
        """Return whether gradients are counted in the step that begins next."""
        return self.count % self.profiler.every == 0

    def reduce(self, bucket: GradBucket) -> Averaged:
        """Return DDP's own average of the buffer, in its shape; count gradients before, and read the clock twice."""
        step = self._step()
        buffer = bucket.buffer()
        if step.sampled:
            self._look(bucket, buffer)
        number = len(step.called)
        step.called.append(moment(buffer))
        step.ended = bucket.is_last()
        if step.ended:  # all gradients are ready
            self._passes[step.sampled].append(self.clock.taken())

        def averaged(future: Averaged) -> torch.Tensor:
            result = future.value()
            step.done[number] = moment(result)
            return result

        return own_way(bucket, self.group).then(averaged)

    def _step(self) -> ObservedStep:
        if not self._steps or self._steps[-1].ended:
            self._steps.append(ObservedStep(sampled=self.counts_next))
            self.count += 1
        return self._steps[-1]

    def _look(self, bucket: GradBucket, buffer: torch.Tensor) -> None:
        gradients = [buffer] if buffer.is_sparse else bucket.gradients()
        for parameter, gradient in zip(bucket.parameters(), gradients, strict=True):
            name = self._names.get(id(parameter), "")
            self._layouts[name] = "sparse" if gradient.is_sparse else "dense"
            if gradient.dtype in DTYPE_NAMES:
                layout = layout_of(gradient, Unit.AUTO if gradient.is_sparse else Unit.ROW)
                held = self._marker.marked(gradient, layout)[:-1]
                self._held.setdefault(name, []).append(float(held.float().mean()) if len(held) else 0.0)
            if name in self.tables and self.communicator and (marks := self.profiler.taken(name, gradient)):
                self.profiler.count(marks, self.communicator)

    def profile(self) -> ModelProfile:
        """Return the profile so far; raises CostError (``bad-profile``) before a step could be timed."""
        seconds = [_seconds(before, step) for before, step in pairwise(list(self._steps)) if step.is_timed]
        if not seconds:
            message = "no step was timed yet"
            help = f"run some steps more: the first one, and each {self.profiler.every}th, is for counting"
            raise CostError(Diagnostic("bad-profile", message, help=help))
        whole, synchronising, exposed = (statistics.median(column) for column in zip(*seconds, strict=True))
        ready, of_modules = self._ready(), self._of_modules()
        forward = [seen for each in list(self._passes[False]) if (seen := each.seconds_forward) is not None]
        return ModelProfile(
            ranks=dist.get_world_size(self.group),
            backend=str(dist.get_backend(self.group)),
            device=str(next(iter(self.parameters.values())).device.type),
            steps=len(seconds),
            seconds_step=whole,
            seconds_synchronising=min(synchronising, whole),
            seconds_exposed=min(exposed, synchronising, whole),
            parameters=tuple(
                self._parameter(name, each, ready.get(name), of_modules.get(name))
                for name, each in self.parameters.items()
            ),
            profiles=self.profiler.profiles(),
            seconds_forward=statistics.median(forward) if forward else None,
            seconds_backward=max(ready.values(), default=None),
        )

    def _ready(self) -> dict[str, float]:
        """Return, by parameter, seconds of the backward pass until its gradient was ready, in steps that were timed."""
        return _medians([each.seconds_ready() for each in list(self._passes[False])])

    def _of_modules(self) -> dict[str, float]:
        """Return, by parameter, seconds of its modules' forward passes, without the first one, which is slow."""
        seen = [each.seconds_of_modules() for each in list(self._passes[True])]
        return _medians(seen[1:] or seen)

    def _parameter(self, name: str, of: torch.Tensor, ready: float | None, forward: float | None) -> ParameterProfile:
        held = self._held.get(name)
        layout = self._layouts.get(name, "dense")
        dtype = DTYPE_NAMES.get(of.dtype, str(of.dtype).removeprefix("torch."))
        density = statistics.fmean(held) if held else None
        return ParameterProfile(name, tuple(of.shape), dtype, layout, density, ready, forward)


@dataclass(frozen=True, slots=True, repr=False)
class DryRun:
    """The handle of a dry run. Train some tens of steps, then read ``profile``, or ``save`` it.

    ``parameters`` are the names of the tables whose rows are counted over all ranks.
    """

    parameters: tuple[str, ...]
    _observer: Observer
    _slot: Slot

    @property
    def profile(self) -> ModelProfile:
        """The profile so far, once counts under way have ended; raises CostError (``bad-profile``) too early."""
        return self._observer.profile()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``profile`` as JSON: see ``zenc.simulator.training.model_profile``. One rank is enough.

        Raises as ``profile`` does, and ZencError (``unwritable-file``).
        """
        self.profile.save(path)

    @property
    def is_attached(self) -> bool:
        """Return whether the dry run still observes."""
        return self._slot.tenant is self._observer

    def detach(self) -> None:
        """Observe no more; all ranks call it between the same two steps. ``zenc.attach`` may follow."""
        self._observer.clock.remove()
        if self.is_attached:
            self._slot.tenant = None

    def __reduce__(self) -> tuple[object, ...]:
        """Reduce to a copy that has nothing to observe."""
        return _copied, (self.parameters,)

    def __repr__(self) -> str:
        how = "" if self.is_attached else " (detached)"
        return f"<zenc.DryRun, {self._observer.count} steps so far{how}>"


def observed(
    ddp_model: DistributedDataParallel,
    parameters: Mapping[str, torch.Tensor],
    tables: Iterable[str],
    deadline: float | None,
    profiler: Profiler,
) -> DryRun:
    """Return a dry run of ``ddp_model``, which counts the holders of rows of ``tables``; parameters have any shape.

    Embeddings with dense gradients are among the tables without being named. Raises as ``zenc.attach`` does.
    """
    agreement = agreement_in(ddp_model.process_group, deadline)
    looked_up = {id(m.weight) for m in ddp_model.module.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
    counted = tuple(dict.fromkeys([*tables, *(name for name, each in parameters.items() if id(each) in looked_up)]))
    observer = Observer(ddp_model.process_group, parameters, counted, profiler, agreement.communicator)
    try:
        slot, _ = agreement.obtained(lambda: take(ddp_model, observer), lambda _: {"tables": ", ".join(counted)})
    except BaseException:
        release(ddp_model, observer)
        raise
    agreement.communicator.users += 1
    observer.clock = PassClock(ddp_model, observer.parameters, lambda: observer.counts_next)
    return DryRun(counted, observer, slot)


def _copied(parameters: tuple[str, ...]) -> DryRun:
    return DryRun(parameters, Observer(None, {}, (), Profiler(), None), Slot())


def _medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: statistics.median(step[name] for step in steps if name in step) for name in names}


def _seconds(before: ObservedStep, step: ObservedStep) -> tuple[float, float, float]:
    """Return seconds of ``step``: since the pass ``before``, with anything under way, and after its own pass."""
    start = step.called[0]
    spans = [(between(start, called), between(start, step.done[number])) for number, called in enumerate(step.called)]
    under_way, until = 0.0, 0.0
    for called, done in sorted(spans):
        under_way += max(0.0, done - max(called, until))
        until = max(until, done)
    whole = between(before.called[-1], step.called[-1])
    return whole, under_way, max(0.0, until - between(start, step.called[-1]))
