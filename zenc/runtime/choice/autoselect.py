"""A scheme that chooses among others, at work: each tensor is summed by the one that costs least.

A call of a tensor, on the worker's turn, so that all ranks do it in the same order:

    1. look, where one is due: sum over the ranks the holders of a sample of the units; predict each candidate
    2. agree on the seconds of an earlier timed call, and so on the candidate: zenc.select.online
    3. load the candidate, if no call ran it yet, all ranks together
    4. run it

Decisions depend on agreed numbers alone: counts are summed, predictions and seconds are those of the rank that
has the greatest. A rank that decided otherwise all the same would be told from the header of the first message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from zenc.codegen.artifact import Artifact, Choosing
from zenc.common.log import notice
from zenc.common.versioned import CHOICES
from zenc.errors import Diagnostic, TensorError, first_line
from zenc.runtime.call.call_queue import Touched, Work
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import Layout
from zenc.runtime.call.planned_calls import Operation, OpLike, PlannedCall
from zenc.runtime.call.stats import ChoiceReport
from zenc.runtime.choice.sampling import Probe, SparsityProbe
from zenc.runtime.gpu.cuda_graph import CapturedCall
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import allreduce_max
from zenc.runtime.lossy.keeper import Keeper
from zenc.runtime.lossy.residual_store import ResidualStore, TensorName, fold, pieces_of, text_of
from zenc.scheme.model import HierarchicalHash
from zenc.select.online import Decision, Records, Selector
from zenc.wire.constants import MOST_HASHED_UNITS, MOST_OWNED_ELEMENTS

MOST_TENSORS = 256
"""Most tensors without a name whose choices are kept; those with one are as many as a model has."""

Loader = Callable[[Artifact, torch.device], Collective]
"""A function that loads a candidate, on the worker's turn of all ranks."""


@dataclass(slots=True)
class Tensor:
    """The state of the tensors of one name and shape; ``took`` are seconds of a timed call, not agreed on yet."""

    deciding: Selector
    artifacts: tuple[Artifact, ...]
    looker: SparsityProbe
    took: float | None = None
    told: int = 0
    before: Probe | None = field(default=None)


class ChoosingCollective(Collective):
    """A ``Collective`` that sums each tensor by one of several schemes: ``decisions`` has them with the reasons."""

    def __init__(
        self, choosing: Choosing, communicator: Communicator, first: Collective, load: Loader, device: torch.device
    ) -> None:
        super().__init__(replace(first.artifact, choosing=choosing), communicator, first.backend_on)
        self._choosing, self._load = choosing, load
        self._able = choosing.able(communicator.size)
        self._loaded: dict[tuple[str, torch.device], Collective] = {(first.artifact.plan.digest, device): first}
        self._tensors: dict[tuple[object, ...], Tensor] = {}
        self._records = Records()
        self.choices = 0
        """Calls so far in which a candidate was tried, and changes to another one."""
        self._restored: dict[str, Any] = {}
        """Decisions from before a restart, by the key of a tensor that has not come yet."""
        self._kept = ResidualStore()
        """Residuals of candidates that select or encode, which the next call of a tensor has under any of them."""
        self._keeper = self._with_store(first).keeper
        if self._keeper is None or not self._keeper.keeps:
            keeping = [one for one in self._able.values() if one.plan.feedback is not None]
            self._keeper = self._collective(keeping[0], device).keeper if keeping else self._keeper

    @property
    def keeper(self) -> Keeper | None:
        """A candidate that keeps losses, for all of them; None where no candidate does."""
        return self._keeper

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions so far, by tensor and then by call; the same on all ranks."""
        return tuple(decision for tensor in self._tensors.values() for decision in tensor.deciding.decisions)

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """Return the decision of each tensor, as JSON data; without tensors whose candidates are still tried."""
        found = {repr(key): known.deciding.state() for key, known in self._tensors.items()}
        own = {key: {**state, "ranks": self.size} for key, state in found.items() if state is not None}
        return {**CHOICES.head, **self._restored, **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from these decisions, on all ranks alike, with tensors that have not been summed yet.

        Decisions of another number of ranks are made anew, beginning with the scheme that they had. Raises CostError
        (``other-version``).
        """
        CHOICES.ensure(state, "this state")
        self._restored = {key: decided for key, decided in state.items() if key != CHOICES.key}

    def _restore(self, key: str, deciding: Selector) -> None:
        try:
            state = self._restored[key]
            goes_on = deciding.restore if state.get("ranks", self.size) == self.size else deciding.follow
            if goes_on(state):
                return
            why = "it is of other candidates"
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            why = first_line(error)
        if self.rank == 0:
            notice(f"{self._choosing.name}: what was decided for {deciding.tensor} is not gone on from: {why}")

    def capturable(self, tensor: torch.Tensor, op: OpLike = "sum", rows: bool = False) -> CapturedCall:
        """Raise TensorError (``not-capturable``) for any shape: a graph always runs its captured scheme."""
        message = f"'{self._choosing.name}' chooses anew while it runs, and a CUDA graph can't"
        help = "load the scheme that it chose: see collective.decisions"
        raise TensorError(Diagnostic("not-capturable", message, help=help))

    def _touched(self, tensor: torch.Tensor, name: TensorName) -> Touched | None:
        """Return None: calls are alone, since the ranks agree before some, and time others."""
        return None

    def _plan_call(self, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName) -> PlannedCall:
        layout = super().prepared(tensor, op, rows).layout  # raises for a bad tensor before anything is sent
        if self._keeper is not None and not layout.is_sparse and self._keeper.keeps:
            self._kept.ensure_fit(pieces_of(name, tensor))
        if self.size == 1 or not layout.units or not layout.width:
            return super()._plan_call(tensor, op, rows, name)
        known = self._tensor(tensor, layout, text_of(name), rows)

        def run(number: int, work: Work) -> torch.Tensor:
            return self._choose_and_run(known, tensor, op, rows, name, number, work)

        return run

    def _tensor(self, tensor: torch.Tensor, layout: Layout, name: str, rows: bool) -> Tensor:
        key = (name, tensor.shape, tensor.dtype, tensor.layout, layout.sparse_dim, rows)
        known = self._tensors.get(key)
        if known is None:
            if not name and sum(not each[0] for each in self._tensors) >= MOST_TENSORS:
                self._tensors = {each: one for each, one in self._tensors.items() if each[0]}
            able = {label: one for label, one in self._able.items() if _takes(one, layout, tensor.is_cuda)}
            called = name or "x".join(map(str, tensor.shape))
            deciding = Selector(called, self._choosing.settings, tuple(able), self._records)
            if repr(key) in self._restored:
                self._restore(repr(key), deciding)
            plans = [one.plan for one in able.values()]
            looker = SparsityProbe(called, layout, plans, self.communicator, tensor.is_cuda)
            told = len(deciding.decisions)
            known = self._tensors[key] = Tensor(deciding, tuple(able.values()), looker, told=told)
        return known

    def _choose_and_run(
        self, known: Tensor, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName, number: int, work: Work
    ) -> torch.Tensor:
        self.communicator.ensure_healthy()
        self._settle(known, tensor)
        deciding = known.deciding
        timed, trial, scheme = deciding.timed, deciding.trying, deciding.names[deciding.current]
        self.choices += trial
        expected = deciding.predicted()
        artifact = known.artifacts[deciding.current]
        call = self._collective(artifact, tensor.device)._plan_call(tensor, op, rows, name)
        folds = self._keeper is not None and artifact.plan.feedback is None and not tensor.is_sparse
        folded = fold(self._kept, pieces_of(name, tensor), tensor) if folds else None
        if timed:
            allreduce_max(self.communicator, [0.0], f"sum {deciding.tensor}")  # so that all ranks begin together
        deciding.begun()
        result = call(number, work)
        if folded is not None:
            folded.end(result)
        if (counted := work.counted) is not None:
            known.took = counted.seconds if timed else None
            seconds = expected.get(scheme), expected.get(deciding.names[0])
            counted.choice = ChoiceReport(
                scheme=scheme, seconds_expected=seconds[0], trial=trial, seconds_of_first=seconds[1]
            )
            self._stats = counted
        return result

    def _settle(self, known: Tensor, tensor: torch.Tensor) -> None:
        """Do the work before a call: agree on the last timed one, look, and act on both."""
        deciding = known.deciding
        if known.took is not None:
            (seconds,) = allreduce_max(self.communicator, [known.took], f"agree on the scheme of {deciding.tensor}")
            known.took = None
            if (told := deciding.ended(seconds)) and self.rank == 0:
                notice(f"{self._choosing.name}: {told}")
        if deciding.looks:
            look = known.looker.look(tensor)
            is_old = deciding.calm and known.before is not None and look is not None and look.is_like(known.before)
            if look is not None:
                deciding.look(None if is_old else known.looker.models(look))
                known.before = known.before if is_old else look
        for decision in deciding.decisions[known.told :]:
            if self.rank == 0:
                notice(f"{self._choosing.name}: {decision}")
        self.choices += len(deciding.decisions) - known.told
        known.told = len(deciding.decisions)

    def _collective(self, artifact: Artifact, device: torch.device) -> Collective:
        key = artifact.plan.digest, device
        if key not in self._loaded:
            self._loaded[key] = self._with_store(self._load(artifact, device))
        return self._loaded[key]

    def _with_store(self, candidate: Collective) -> Collective:
        if candidate.keeper is not None:
            candidate.keeper.store = self._kept
        return candidate

    def __repr__(self) -> str:
        return f"<zenc.Collective {self._choosing.name} of {len(self._able)} rank {self.rank} of {self.size}>"


def _takes(artifact: Artifact, layout: Layout, on_gpu: bool) -> bool:
    """Return whether the scheme can sum tensors of ``layout``: their size, and losses that can be kept."""
    if artifact.plan.is_lossy and (layout.is_sparse or layout.dtype is torch.float64):
        return False
    if isinstance(artifact.plan.mapping, HierarchicalHash):
        return layout.units <= MOST_HASHED_UNITS
    by_elements = on_gpu and artifact.plan.announces and layout.width == 1
    return not by_elements or layout.units <= MOST_OWNED_ELEMENTS
