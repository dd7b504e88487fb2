"""Averager: an averaging on a process group, which averages the tensors of each rank with those of its group, by step.

    Averager  = Connected  step                                      # averages made so far, in these groups
    Connected = Averaging  whole: Communicator  GroupCollective?*    # one for each step of a period; None: alone

The groups of a step are those of division ``step mod period``.

Within a step no rank waits for another group. Messages carry the number of the step, so ranks that are in different
ones find out when they meet, or when a wait passes its deadline; before the first average, and after a state was
loaded, all ranks agree on it. Means of a group have the same bits on all of its ranks, as every result of a collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.hooks import RemovableHandle

from zenc.averaging.model import Averaging, division_text
from zenc.common.versioned import STEPS
from zenc.errors import CostError, Diagnostic, SynchronisationError, TensorError
from zenc.runtime.backend_api import Part
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import writable
from zenc.runtime.call.planned_calls import Operation, PreparedCall
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.communicator import Communicator

BUCKET_BYTES = 25 << 20
"""Most bytes of tensors that are averaged in one call, as DDP's buckets are by default; a larger one goes alone."""
_SPREAD = 0x9E3779B97F4A7C15
"""An odd number, by which the numbers of steps become 64 bits that differ everywhere."""


class GroupCollective(Collective):
    """A collective of one group of an averaging, whose calls fit together only in the same ``step``."""

    step = 0

    def prepared(self, tensor: torch.Tensor, op: Operation, rows: bool, part: Part = None) -> PreparedCall:
        """Return the common parts of calls for ``tensor`` of any shape; their signature has the step."""
        prepared = super().prepared(tensor, op, rows, part)
        return replace(prepared, signature=prepared.signature ^ self.step * _SPREAD % 2**64)


@dataclass(frozen=True, slots=True)
class Connected:
    """An averaging among the ranks of ``whole``: the collective of this rank's group in each step of a period."""

    averaging: Averaging
    whole: Communicator
    collectives: tuple[GroupCollective | None, ...]


class Averager:
    """An averaging at work, made by ``zenc.load_averager`` on all ranks of the group together.

    All ranks must make the same averages, with tensors of the same shapes and dtypes in the same order.
    """

    def __init__(
        self, at_work: Connected, deadline: float, again: Callable[[dist.ProcessGroup | None], Connected]
    ) -> None:
        self.step = 0
        """The number of averages made so far, since the averager was made or rebuilt."""
        self._at_work, self._deadline, self._again = at_work, deadline, again
        self._agreed = False

    @property
    def averaging(self) -> Averaging:
        """The groups of each step of a period, and the scheme of each."""
        return self._at_work.averaging

    @property
    def rank(self) -> int:
        """The rank of this process among all."""
        return self._at_work.whole.rank

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks that this one averages with in the next step, itself among them."""
        groups = self.averaging.divisions[self.step % self.averaging.period].groups(self._at_work.whole.size)
        return next(group for group in groups if self.rank in group)

    @property
    def collectives(self) -> tuple[GroupCollective | None, ...]:
        """The collective of this rank's group in each step of a period; None where it is alone."""
        return self._at_work.collectives

    def average_parameters(self, parameters: Iterable[torch.Tensor]) -> None:
        """Average ``parameters``, of any shapes, in place with the ranks of this step's group, and go on to the next.

        They are dense, and the same on all ranks but for their values; one that comes twice counts once.

        Raises:
            TensorError: for a tensor that can't be averaged; the step has not been made.
            SynchronisationError: ranks are in different steps, differ in their tensors, or a wait passed its deadline.
        """
        tensors = [writable(each).detach() for each in {id(each): each for each in parameters}.values()]
        for each in tensors:
            if each.layout is not torch.strided or not each.is_floating_point():
                message = f"dense floating-point parameters are averaged, and this is {each.dtype}, {each.layout}"
                raise TensorError(Diagnostic("unsupported-layout", message))
        if not self._agreed:
            self._agree(tensors)
        collective = self._at_work.collectives[self.step % self.averaging.period]
        if collective is not None:
            collective.step = self.step
            try:
                for bucket in _buckets(tensors):
                    _average(bucket, collective)
            except SynchronisationError as error:
                self._leave(error)
                raise SynchronisationError([self._noted(each) for each in error.diagnostics]) from error
        self.step += 1

    def rebuild(self, group: dist.ProcessGroup | None = None) -> None:
        """Go on among the ranks of ``group``, more or fewer than before; the default are all ranks.

        All of them take part: those that have this averager call ``rebuild``, and new ones ``zenc.load_averager``, as
        it was loaded. A period begins, at whose end all ranks have the mean of their present values; ``follow`` goes
        on.

        An average that failed was made by some ranks maybe, and not by others: each tensor has its values still, or the
        mean of its group. New ranks have parameters of their own: give them those of another one before.

        Raises ZencError as ``zenc.load_averager`` does, such as ``wrong-size`` where the averaging does not allow so
        many ranks.
        """
        message = "this rank has left the group, and rebuilds its averager in another one"
        self._leave(SynchronisationError(Diagnostic("group-broken", message)))
        self._at_work = self._again(group)
        self.step, self._agreed = 0, False

    def follow(self, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Average the parameters of ``optimizer`` after each of its steps, until the handle is removed.

        Every rank must make every step: with a ``GradScaler``, which may leave out a step on a single rank, call
        ``average_parameters`` instead.
        """

        def averaged(*_: object) -> None:
            self.average_parameters(each for group in optimizer.param_groups for each in group["params"])

        handle: RemovableHandle = optimizer.register_step_post_hook(averaged)
        return handle

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the step, and the divisions that it counts in, as JSON data for a checkpoint."""
        divisions = [division_text(each) for each in self.averaging.divisions]
        return {**STEPS.head, "step": self.step, "divisions": divisions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, on all ranks; the next average finds out whether all have loaded the same step.

        Raises CostError: ``bad-state`` unless it is a state of this averaging, and ``other-version``.
        """
        STEPS.ensure(state, "this state")
        step, divisions = state.get("step"), state.get("divisions")
        if not isinstance(step, int) or step < 0 or divisions != self.state_dict()["divisions"]:
            message = f"this is no state of averaging '{self.averaging.name}'"
            help = f"its period is {', '.join(self.state_dict()['divisions'])}"
            raise CostError(Diagnostic("bad-state", message, help=help))
        self.step, self._agreed = step, False

    def _agree(self, tensors: Sequence[torch.Tensor]) -> None:
        """Go on where all ranks are in the same step, and have as many tensors of as many values."""
        values = sum(each.numel() for each in tensors)
        told = f"{self.averaging.name} in step {self.step}, of {len(tensors)} tensors with {values:,} values"
        self._at_work.whole.ensure_healthy()
        GroupAgreement(self._at_work.whole, self._deadline).reach({"averaging": told})
        self._agreed = True

    def _leave(self, error: SynchronisationError) -> None:
        """Leave the groups of all steps, so that no rank waits for this one in another."""
        for collective in self._at_work.collectives:
            if collective is not None and collective.communicator.broken is None:
                collective.communicator.abort(error, None)

    def _noted(self, diagnostic: Diagnostic) -> Diagnostic:
        note = f"this rank is in step {self.step} of averaging '{self.averaging.name}', with ranks {list(self.group)}"
        return replace(diagnostic, notes=(*diagnostic.notes, note))

    def __repr__(self) -> str:
        return f"<zenc.Averager {self.averaging.name} rank {self.rank} of {self._at_work.whole.size}, step {self.step}>"


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield tensors of one dtype and device, in their order, of ``BUCKET_BYTES`` at most together."""
    alike: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for of_kind in alike.values():
        bucket: list[torch.Tensor] = []
        for tensor in of_kind:
            if bucket and sum(each.nbytes for each in bucket) + tensor.nbytes > BUCKET_BYTES:
                yield bucket
                bucket = []
            bucket.append(tensor)
        yield bucket


def _average(bucket: Sequence[torch.Tensor], collective: GroupCollective) -> None:
    """Average the tensors of ``bucket`` in one call: a single contiguous one in place, others by a copy."""
    if len(bucket) == 1 and bucket[0].is_contiguous():
        collective.all_reduce(bucket[0], "mean")
        return
    flat = torch.cat([each.reshape(-1) for each in bucket])
    collective.all_reduce(flat, "mean")
    at = 0
    for each in bucket:
        each.copy_(flat[at : at + each.numel()].view_as(each))
        at += each.numel()
