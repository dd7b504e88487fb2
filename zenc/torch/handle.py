"""The handle of a scheme at work in a DDP model: what ``zenc.attach`` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from zenc.common.versioned import HANDLE
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.ranges import Recorder
from zenc.runtime.call.stats import CallReport
from zenc.runtime.group.host_collectives import gather
from zenc.runtime.group.process_groups import again_if_left
from zenc.select.online import Decision
from zenc.torch.hook import ZencState
from zenc.torch.loadable import choices_of, choosers_of, completed, ensure_loadable, keepers_of, part_of
from zenc.torch.parameters import UnusedWatch
from zenc.torch.records.metrics import MetricsLog, log_for
from zenc.torch.records.summary import TrainingSummary, totals_from_json, totals_to_json
from zenc.torch.records.timeline import traced
from zenc.torch.slot import Slot


@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    """A scheme at work in a DDP model. ``parameters`` are the names of those whose gradients go through it.

    Copied or unpickled, with whatever holds it, a handle keeps these names and nothing else.
    """

    state: ZencState
    parameters: tuple[str, ...]
    _slot: Slot
    _watch: UnusedWatch
    _again: Callable[[DistributedDataParallel, Attachment], Attachment] | None = None
    """Function that attaches the same scheme to another wrapper, among other ranks."""

    def __reduce__(self) -> tuple[type[Attachment], tuple[Any, ...]]:
        return Attachment, (self.state, self.parameters, self._slot, self._watch)

    @property
    def collective(self) -> Collective:
        """The loaded scheme; for a strategy that of the first rule. SchemeError (``not-attached``) for a copy."""
        return self.state.collective

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The loaded schemes of all rules, each once."""
        return self.state.collectives

    @property
    def rules(self) -> dict[str, str]:
        """The rule of the strategy for each parameter's gradient; empty texts without a strategy."""
        return {name: rule.text for rule in self.state.rules for name in rule.served.names}

    def residual(self, name: str) -> torch.Tensor:
        """Return the residual of the gradient of the parameter ``name``, float32, in its shape, on this rank.

        Raises TensorError (``no-residual``) where nothing is kept.
        """
        owner = next((rule.collective for rule in self.state.rules if name in rule.served.names), self.collective)
        return owner.residual(name)

    def announce(self, name: str, ids: torch.Tensor) -> None:
        """Announce the rows ``ids``, of any shape, that the next average of the parameter ``name`` will have here.

        It serves ids that ``announce="forward"`` does not see, or sees late: those of a loaded batch, lookups by
        functions. All ranks call this together; one that will have no rows gives none. See ``Collective.announce``.

        Raises SchemeError (``unknown-parameter``) unless the parameter is a table under a scheme by holders.
        """
        self.state.announcer.announce(name, ids)

    @property
    def stats(self) -> dict[str, CallReport]:
        """The statistics of each parameter's last synchronisation: see ``Collective.stats``."""
        return self.state.stats

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The scheme of each parameter, with the reason, where the scheme chooses among others; otherwise empty."""
        return tuple(decision for each in self.collectives for decision in each.decisions)

    @property
    def is_attached(self) -> bool:
        """Return whether the gradients of the model go through the scheme."""
        return self._slot.tenant is self.state

    def summary(self, all_ranks: bool = False) -> TrainingSummary:
        """Return bytes that were sent and that DDP would have sent, the use of time, and waits by rank.

        Print it, or take ``to_json()``. With ``all_ranks`` all ranks call it together, and get the numbers of all;
        else it is of this rank, which asks nobody. Raises SynchronisationError where other ranks stay away.
        """
        collective, log = self.collective, self.state.log
        by_rank = {collective.rank: log.copied_totals()}
        if all_ranks:
            communicator = collective.communicator
            found = communicator.worker.within(lambda: gather(communicator, totals_to_json(log.copied_totals())))
            by_rank = {rank: totals_from_json(text) for rank, text in enumerate(found)}
        return TrainingSummary(self.state.name, collective.size, by_rank)

    def trace(
        self, path: str | os.PathLike[str], *, beside: str | os.PathLike[str] | None = None
    ) -> AbstractContextManager[Recorder]:
        """Write a timeline of the steps within, on all ranks, to ``path``, for Perfetto or chrome://tracing.

            with handle.trace("steps.json", beside="predicted.json"):
                for batch in some_batches: ...                          # as always

        All ranks enter and leave it together; rank 0 writes the file. ``beside`` is what ``zenc simulate --trace``
        wrote: its rows stand in the same file, with the same names.

        Raises CostError (``bad-trace``), ZencError (``unwritable-file``), SynchronisationError where ranks stay away.
        """
        return traced((self.collective, *self.collectives[1:]), self.state.name, path, beside)

    def log_to(
        self, writer: Any, *, every: int = 1, step: Callable[[], int] | None = None, prefix: str = "zenc"
    ) -> MetricsLog:
        """Write bytes, seconds, waiting and densities of each step to ``writer``, by parameter and for all together.

        Args:
            writer: a TensorBoard ``SummaryWriter``, a logger of Lightning, a run of Weights & Biases, or a
                ``prometheus_client.CollectorRegistry``; or anything with ``add_scalar``, ``log_metrics`` or ``log``.
            every: write each ``every``-th step. A step is a backward pass that synchronises.
            step: returns the number of a step; otherwise they are counted from 0. Pass your own where ``writer``
                demands numbers that never fall, as Weights & Biases does.
            prefix: of the names: ``zenc/words.weight/bytes_sent``, ``zenc/seconds``.

        Returns:
            The log; its ``flush()`` writes the last step, and so does ``detach``.

        Raises:
            ZencError: ``unknown-writer``.
        """
        log = log_for(writer, every, step, prefix)
        self.state.log.listeners.append(log)
        return log

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """Return the state for a checkpoint: decisions of a scheme that chooses, the profiler's counts, and residuals.

        It has plain values and tensors, which ``torch.load(..., weights_only=True)`` reads. Under a scheme with
        ``feedback`` each rank has residuals of its own, which it goes on from among as many ranks. ``together`` all
        ranks call this, and get the sums over the ranks, from which any number of them goes on. All else is the same on
        all ranks, so rank 0's is enough. It is called between two steps. Raises SynchronisationError where ranks stay
        away.
        """
        collective, profiler, scaling = self.collective, self.state.profiler, self.state.scaling
        choices = {key: value for each in choosers_of(self.state) for key, value in each.state_dict(together).items()}
        own = {"scheme": self.state.digest, "ranks": collective.size, "choices": choices}
        residuals = {}
        if keepers := keepers_of(self.state):
            kept = completed([keeper.state_dict(together) for keeper in keepers], self.state)
            residuals = {"residuals": kept, "scale": scaling.scale if scaling else None, "calls": self.state.calls}
        counts = profiler.state_dict() if profiler else None
        grouping = self.state.plan.grouping
        tried = grouping.state() if grouping else {}
        groups = {"groups": tried} if tried else {}
        return {**HANDLE.head, **own, **residuals, **groups, "profiler": counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the ``state`` of an earlier run, before the first step.

        All ranks call it: each with its own, or all with one that was made together. Decisions of another scheme, of
        other candidates or for tensors of other shapes are left out; those of another number of ranks are made anew,
        beginning with the scheme that was chosen. Counts are left out if this handle has no profiler.
        Residuals are never left out, and never begin at zero where they are missing.

        Raises:
            CostError: ``bad-state``, unless a handle gave it, and for one without the residuals that the scheme keeps;
                ``other-version``, for a state that this zenc can't read.
            TensorError: ``other-model``, for residuals of other parameters or shapes; ``other-world``, for those of
                another rank, or of another number of ranks.
            SynchronisationError: ``different-states``, on all ranks, if they were given different ones; on those that
                could go on, if another rank could not.
        """
        profiler, scaling = self.state.profiler, self.state.scaling
        ensure_loadable(state, self.state)
        if profiler is not None and state.get("profiler") is not None:
            profiler.load_state_dict(state["profiler"])
        keepers = keepers_of(self.state)
        for keeper, names in keepers.items():
            if isinstance(state.get("residuals"), Mapping):
                keeper.load_state_dict(part_of(state["residuals"], keeper, names, self.state.shapes))
        if keepers:
            self.state.sum_as_before(state.get("calls") or [])
        if keepers and scaling:
            scaling.scale = state.get("scale")
        same = (state.get("scheme"), state.get("ranks")) == (self.state.digest, self.collective.size)
        others = state.get("ranks") != self.collective.size
        if (same or others) and isinstance(state.get("choices"), Mapping):
            for each in choosers_of(self.state):
                each.load_state_dict(choices_of(state))
        if same and isinstance(state.get("groups"), Mapping) and self.state.plan.grouping:
            self.state.plan.grouping.restore(state["groups"])

    def rebuild(self, ddp_model: DistributedDataParallel) -> Attachment:
        """Attach the same scheme to ``ddp_model``, and go on from this rank's state: after a step that failed, say.

            dist.init_process_group("gloo", store=..., rank=..., world_size=...)    # those that live, and new ones
            ddp_model = DistributedDataParallel(ddp_model.module)
            handle = handle.rebuild(ddp_model)

        All ranks of the new wrapper's group take part: those that have this handle call ``rebuild``, and new ones
        ``zenc.attach``, with the same arguments. The old group's threads and connections end, and the old wrapper is of
        no use any more. The state are residuals, decisions, counts of a profiler, the sums of ``summary``, and logs.
        Nothing is kept of the step under way: it is made again. See ``Collective.rebuild``; the parameters are yours to
        make the same on all ranks, which wrapping does by those of rank 0.

        Raises SchemeError (``not-attached``) for a copy; otherwise as ``zenc.attach`` does, and SynchronisationError
        (``different-states``) where the ranks' states are of other steps.
        """
        assert self.collective.origin is not None and self._again is not None
        self.detach()
        self._slot.let_go(ddp_model)
        return again_if_left(partial(self._again, ddp_model, self))

    def detach(self) -> None:
        """Give the model back to DDP, whose own all-reduce averages all gradients from the next backward pass on.

        All ranks call it between the same two steps. ``stats`` and the like stay; ``zenc.attach`` may follow. So do
        connections and threads, until the process group is destroyed, or ``handle.collective.close()`` ends them.
        """
        if self.is_attached:
            self._slot.tenant = None
        self._watch.remove()
        self.state.announcer.remove()
        for log in self.state.log.listeners:
            log.flush()

    def __repr__(self) -> str:
        how = "" if self.is_attached else " (detached)"
        return f"<zenc.Attachment {', '.join(self.parameters) or 'of no parameter'}: {self.state!r}{how}>"
