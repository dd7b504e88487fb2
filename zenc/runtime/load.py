"""Loading: an artifact becomes a collective, by all ranks together: a backend for each device, and their agreement.

The deadline of any wait is the caller's, otherwise ZENC_DEADLINE_S, otherwise the process group's own timeout.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from zenc.codegen.artifact import Artifact, Choosing
from zenc.common.limits import LIMITS
from zenc.common.log import notice
from zenc.errors import BuildError, Diagnostic, TensorError, ZencError
from zenc.runtime.backend_api import Backend
from zenc.runtime.call.collective import Collective, Origin
from zenc.runtime.gpu.capacity import Capacity, Shares, capacity_of
from zenc.runtime.group.agreement import GroupAgreement, Options
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.process_groups import communicator_for
from zenc.scheme.compression import Residual, Rounding

log = logging.getLogger("zenc")
UNKNOWN_TIMEOUT = 1800.0
"""Seconds for a group whose backends don't say their timeout: torch's default for all but NCCL."""
Make = Callable[[Artifact, torch.device, Communicator, float, Capacity | None, bool], Backend]
"""A function that makes backends: ``zenc.pipeline.backend``, or a stand-in."""


def load_collective(
    obtain: Callable[[int], Artifact],
    make: Make,
    group: dist.ProcessGroup | None,
    deadline: float | None,
    shares: Shares | None = None,
    *,
    on: torch.device | None = None,
    may_lose: bool = False,
    shared_memory: bool = True,
) -> Collective:
    """Get the artifact, build it ``on`` a device, and agree with all ranks that they hold the same one.

    A choice among schemes that lose something is refused, unless it ``may_lose``. A rank that fails on the way still
    takes part in the agreement, so that the others learn of it at once and by name, and then raises its own error. For
    a scheme that chooses among others the first candidate is built here. Without ``shared_memory`` ranks of one host
    exchange as those of others do.
    """
    meeting = agreement_in(group, deadline)
    given = meeting.communicator, obtain, make, meeting.deadline, shares
    return load_among(*given, on=on, may_lose=may_lose, shared_memory=shared_memory)


def load_among(
    communicator: Communicator,
    obtain: Callable[[int], Artifact],
    make: Make,
    deadline: float,
    shares: Shares | None = None,
    *,
    on: torch.device | None = None,
    may_lose: bool = False,
    shared_memory: bool = True,
    before: Collective | None = None,
) -> Collective:
    """Load as ``load_collective`` does, among the ranks of ``communicator``.

    Where some of them have loaded it ``before`` among others, all go on from their state.
    """
    communicator.ensure_healthy()

    def again(other: Communicator, old: Collective) -> Collective:
        given = other, obtain, make, deadline, shares
        return load_among(*given, on=on, may_lose=may_lose, shared_memory=shared_memory, before=old)

    loading = _Loading(communicator, make, deadline, shares, shared_memory)
    try:
        artifact = obtain(communicator.size)
        choosing = artifact.choosing
        _ensure_sound(choosing, may_lose)
        first = next(iter(_able_of(choosing, communicator.size, communicator.rank).values())) if choosing else artifact
    except Exception as failure:
        loading.tell(failure)
        raise
    device = on or _usual_device(communicator)
    collective, goes_on = loading.load_from(first, device, artifact, before is not None)
    if choosing:
        from zenc.runtime.choice.autoselect import ChoosingCollective

        collective = ChoosingCollective(choosing, communicator, collective, loading.load, device)
    collective.origin = Origin(again, deadline)
    communicator.users += 1
    if goes_on:
        from zenc.runtime.rebuilding.survivors import KeptByCollective, go_on, kept_by_all

        own = None if before is None else KeptByCollective(before)
        go_on(collective, communicator.worker.within(lambda: kept_by_all(own, communicator)))
    return collective


def collective_of(
    artifact: Artifact, communicator: Communicator, backend_on: Callable[[torch.device], Backend]
) -> Collective:
    """Return the collective of ``artifact``: one that keeps residuals where the scheme loses something."""
    plan = artifact.plan
    if not plan.is_lossy and plan.feedback is None:
        return Collective(artifact, communicator, backend_on)
    from zenc.runtime.lossy.lossy_collective import LossyCollective

    return LossyCollective(artifact, communicator, backend_on)


def _able_of(choosing: Choosing, size: int, rank: int) -> Mapping[str, Artifact]:
    """Return the candidates that run among ``size`` ranks; rank 0 gives notice of the others."""
    able = choosing.able(size)
    if rank == 0 and (left_out := [name for name in choosing.candidates if name not in able]):
        notice(f"{choosing.name}: {', '.join(left_out)} can't run among {size} ranks")
    return able


def _ensure_sound(choosing: Choosing | None, may_lose: bool) -> None:
    """Raise BuildError where losses of one candidate would wait for it until it is chosen again."""
    plans = {name: one.plan for name, one in choosing.candidates.items()} if choosing else {}
    lossy = [name for name, plan in plans.items() if plan.is_lossy]
    if choosing and lossy and not may_lose:
        message = f"'{choosing.name}' chooses among others, and {', '.join(lossy)} leaves out something of a gradient"
        help = "load it alone, choose among schemes that lose nothing, or list them in a rule of a strategy"
        raise BuildError(Diagnostic("no-compression", message, help=help))
    more = {None if isinstance(plan.feedback, Residual | Rounding) else plan.feedback for plan in plans.values()}
    if choosing and len(more) > 1:
        message = f"'{choosing.name}' chooses among schemes of which some keep more than residuals, and others don't"
        help = "choose among schemes with 'feedback: residual' and such that lose nothing"
        raise BuildError(Diagnostic("conflicting-candidates", message, help=help))


class Backends:
    """The backends of ``artifact`` by device, each made when its first tensor comes.

    ``deadline``: seconds for a build, and for any single wait.
    """

    def __init__(
        self,
        artifact: Artifact,
        make: Make,
        communicator: Communicator,
        deadline: float,
        capacity: Capacity | None = None,
        shared_memory: bool = True,
    ) -> None:
        self.artifact, self.communicator, self._make = artifact, communicator, make
        self._options = deadline, capacity, shared_memory
        self._made: dict[torch.device, Backend] = {}

    def on(self, device: torch.device) -> Backend:
        """Return the backend for tensors on ``device``.

        Raises TensorError ``other-gpu`` if there is one for another GPU, and as making it does.
        """
        made = self._made.get(device)
        if made is None:
            self._ensure_one_gpu(device)
            made = self._make(self.artifact, device, self.communicator, *self._options)
            self._made[device] = made
            if self.communicator.rank == 0:
                plan, size = self.artifact.plan, self.communicator.size
                log.info("runs %s (plan %s) on %d ranks: %s", plan.scheme, plan.digest[:12], size, made.code)
        return made

    def _ensure_one_gpu(self, device: torch.device) -> None:
        """Raise TensorError for a second GPU: other ranks would wait for this one on its first."""
        for known in self._made:
            if known.type == device.type == "cuda":
                message = f"the tensor is on {device}, and this collective sums on {known}"
                help = "one process a GPU: torch.cuda.set_device(local_rank) before anything else; or load it once more"
                raise TensorError(Diagnostic("other-gpu", message, help=help))


T = TypeVar("T")


def agreement_in(group: dist.ProcessGroup | None, deadline: float | None) -> GroupAgreement:
    """Return the agreement of the ranks of ``group``, each of which calls this, within its own ``deadline``.

    Raises ZencError (``bad-deadline``), of which the other ranks hear.
    """
    seconds, failure = deadline_or_why(deadline, group)
    communicator = communicator_for(group, seconds)
    communicator.ensure_healthy()
    agreement = GroupAgreement(communicator, seconds)
    if failure is not None:
        agreement.tell(failure)
        raise failure
    return agreement


def deadline_or_why(given: float | None, group: dist.ProcessGroup | None) -> tuple[float, ZencError | None]:
    """Return ``deadline_of``; or the timeout of ``group``, and the error of ``given``, for the other ranks to hear."""
    try:
        return deadline_of(given, group), None
    except ZencError as failure:
        if not (dist.is_available() and dist.is_initialized()):
            raise
        return _timeout(group), failure


def agreement_of(collective: Collective) -> GroupAgreement:
    """Return the agreement of the ranks of ``collective``, within the deadline that it was loaded with."""
    communicator, origin = collective.communicator, collective.origin
    communicator.ensure_healthy()
    return GroupAgreement(communicator, origin.deadline if origin else _timeout(communicator.parent()))


def obtained_by_all(
    obtain: Callable[[int], T], told: Callable[[T], Options], group: dist.ProcessGroup | None, deadline: float | None
) -> T:
    """Return the result of ``obtain`` for the size of ``group``, once all ranks have it with equal ``told`` options.

    Raises what ``obtain`` does here, and SynchronisationError where it did on another rank, or gave something else.
    """
    agreement = agreement_in(group, deadline)
    return agreement.obtained(lambda: obtain(agreement.communicator.size), told)[0]


@dataclass(frozen=True, slots=True)
class _Loading:
    communicator: Communicator
    make: Make
    deadline: float
    shares: Shares | None
    shared_memory: bool

    def load(self, artifact: Artifact, device: torch.device) -> Collective:
        """Load ``artifact`` on all ranks, as ``load_from`` does."""
        return self.load_from(artifact, device, artifact, False)[0]

    def load_from(
        self, artifact: Artifact, device: torch.device, whole: Artifact, keeps: bool
    ) -> tuple[Collective, bool]:
        """Load ``artifact`` on all ranks, which agree that they hold it, and the same ``whole`` that it is one of.

        Returns also whether any of them ``keeps`` something of an earlier group. All ranks come at the same place among
        their calls: between two of them, or within one.
        """
        try:
            capacity = capacity_of(self.shares, artifact.plan, self.communicator.size)
            backends = Backends(artifact, self.make, self.communicator, self.deadline, capacity, self.shared_memory)
            if device.type == "cpu":
                backends.on(device)  # what can fail fails here, on all ranks at once
        except Exception as failure:
            self.tell(failure)
            raise
        agreement = GroupAgreement(self.communicator, self.deadline)
        goes_on = agreement.reach(self._told(whole, capacity, device), keeps=keeps)
        if device.type != "cpu":
            backends.on(device)  # has an agreement of its own
        return collective_of(artifact, self.communicator, backends.on), goes_on

    def _told(self, whole: Artifact, capacity: Capacity | None, device: torch.device) -> Options:
        choices = whole.choosing.candidates.items() if whole.choosing else (("", whole),)
        params = [f"{name} {key} = {value}".strip() for name, one in choices for key, value in one.plan.parameters]
        return {
            "scheme": whole.name,
            "params": ", ".join(params),
            "link": f"{whole.plan.link} ps a byte",
            "plan": whole.digest,
            "capacity": str(capacity or "none"),
            "shared_memory": str(self.shared_memory),
            "device": device.type,
        }

    def tell(self, failure: Exception) -> None:
        """Let the other ranks fail, with the name of this one."""
        GroupAgreement(self.communicator, self.deadline).tell(failure)


def _usual_device(communicator: Communicator) -> torch.device:
    """Return the device of the user's group: this process's GPU, if it is a group for GPUs only."""
    parent = communicator.parent()
    kinds = {device.type for device in getattr(parent, "_device_types", ())}
    return torch.device("cuda", torch.cuda.current_device()) if kinds == {"cuda"} else torch.device("cpu")


def deadline_of(given: float | None, group: dist.ProcessGroup | None) -> float:
    """Return the seconds that any single wait may take among the ranks of ``group`` (default: all ranks).

    Raises ZencError (``bad-deadline``) unless it is a number of seconds that clocks can count.
    """
    said = os.environ.get("ZENC_DEADLINE_S") if given is None else given
    try:
        chosen = min(_timeout(group), LIMITS["deadline"].most) if said is None else float(said)
    except (ValueError, TypeError, OverflowError):
        chosen = -1.0
    if chosen not in LIMITS["deadline"]:
        raise ZencError(Diagnostic("bad-deadline", f"a deadline {LIMITS['deadline'].words}, not {said!r:.40}"))
    return chosen


def _timeout(group: dist.ProcessGroup | None) -> float:
    """Return the longest timeout of the backends of ``group``; there may be one for each type of device."""
    of = dist.group.WORLD if group is None and dist.is_available() and dist.is_initialized() else group
    if not isinstance(of, dist.ProcessGroup):
        return UNKNOWN_TIMEOUT  # errors of the group are reported where connections are made
    backends = [of._get_backend(torch.device(device)) for device in of._device_types]
    found = [getattr(getattr(backend, "options", None), "_timeout", None) for backend in backends]
    return max((timeout.total_seconds() for timeout in found if timeout is not None), default=UNKNOWN_TIMEOUT)
