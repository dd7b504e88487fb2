"""Announcements: units that ranks say they will have, before they have values, and the owners found for them.

    Announcement = shape  units  Job: AnnouncedOwners        # a call of its own in the order of calls

The call that sums values of these units begins with their owners, and its first values leave at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from zenc.errors import Diagnostic, TensorError
from zenc.plan.ir import PhaseKind
from zenc.runtime.backend_api import Announced
from zenc.runtime.call.call_queue import Job, Touched, Turn, on_stream
from zenc.runtime.call.layout import Layout, as_tensor, without_units
from zenc.runtime.call.planned_calls import PlannedCalls, PreparedCall, signature_of
from zenc.runtime.call.ranges import of_call
from zenc.runtime.call.stats import CallStats, added

if TYPE_CHECKING:
    from zenc.codegen.artifact import Artifact


class Announcement:
    """The units that each rank will have of tensors of ``shape``; made by ``Collective.announce``.

    It can be given to any number of calls. ``units``: those of such a tensor, rows as a rule. ``by``: the maker.
    """

    def __init__(self, shape: tuple[int, ...], units: int, by: object, key: str, job: Job[Announced]) -> None:
        self.shape, self.units, self.by, self.key, self._job = shape, units, by, key, job
        self._counted = False

    def is_completed(self) -> bool:
        """Return whether all ranks have heard of each other's units, or failed to."""
        return self._job.is_completed()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all ranks have heard of the units; raises SynchronisationError, also after ``timeout`` seconds."""
        self._job.wait(timeout)

    def call_of(
        self, tensor: torch.Tensor, prepared: PreparedCall, by: object
    ) -> Callable[[int, Turn], tuple[torch.Tensor, CallStats | None]]:
        """Return the call of ``tensor``, of any shape, like ``PreparedCall.run``; it takes two numbers of calls.

        Raises TensorError (``other-announcement``) unless the announcement is for such tensors, by the same collective.
        """
        shape, units = tuple(prepared.layout.shape), prepared.layout.units
        if self.by is not by or shape != self.shape or units != self.units:
            whose = "by another collective" if self.by is not by else f"for {self.units:,} units of shape {self.shape}"
            message = f"units were announced {whose}, and this tensor has {units:,} of shape {shape}"
            help = "announce with the collective that sums, and with the shape of the tensor"
            raise TensorError(Diagnostic("other-announcement", message, help=help))
        return partial(self._run, prepared, tensor)

    def _run(
        self, prepared: PreparedCall, tensor: torch.Tensor, number: int, turn: Turn
    ) -> tuple[torch.Tensor, CallStats | None]:
        """Run the call on the worker's turn, after the announcement, whose statistics go to the first call."""
        found = self._job.wait()
        if found is None:
            return prepared.run(tensor, number, turn)
        owners, before = found
        result, stats = prepared.run(tensor, number, turn, owners=owners)
        if stats is not None and not self._counted:
            self._counted, stats.phases = True, added(before, stats.phases)
        return result, stats

    def __repr__(self) -> str:
        return f"<zenc.Announcement of {self.shape}, {'ended' if self.is_completed() else 'under way'}>"


def announce_rows(calls: PlannedCalls, ids: torch.Tensor, shape: Sequence[int], name: str) -> Announcement:
    """Announce as ``Collective.announce`` does, of ``ids`` of any shape."""
    communicator, ids = calls.communicator, as_tensor(ids)
    communicator.ensure_healthy()
    prepared = announcing(calls, shape, ids.device).named(name)
    rows, number = row_ids(ids, prepared.layout.units), communicator.next_call()
    key = f"announcement {number}"
    job = Job[Announced](Turn(Touched(frozenset((key,))), communicator.ensure_healthy))

    def run() -> Announced:
        with of_call(calls.recorder, name, number):
            return prepared.announce(rows, number, job.turn)

    communicator.worker.submit(on_stream(run, rows, True), job)
    return Announcement(tuple(shape), prepared.layout.units, calls, key, job)


def announcing(calls: PlannedCalls, shape: Sequence[int], device: torch.device) -> PreparedCall:
    """Return the common parts of calls that announce rows of tensors of ``shape``.

    Raises TensorError (``not-announced``) where a unit's owner does not depend on its holders, or is named in calls.
    """
    artifact = calls.artifact
    if not announces(artifact):
        message = f"{artifact.name} {_why_not(artifact)}: there is nothing to announce"
        help = "load 'holders', or a scheme of your own that is balanced by holders"
        raise TensorError(Diagnostic("not-announced", message, help=help))
    prepared = calls.prepared(without_units(shape, 1).to(device), "sum", False)
    prepared.prepared.ensure_announces()
    _ensure_rows(prepared.layout, artifact.plan.scheme)
    return replace(prepared, signature=signature_of(artifact.plan.digest, prepared.layout, "sum", PhaseKind.ANNOUNCE))


def _why_not(artifact: Artifact) -> str:
    if artifact.choosing is not None:
        return "chooses its scheme in each call"
    if artifact.plan.across is not None:
        return "announces what its inner tiers have summed"
    return "has owners that do not depend on who holds what"


def announces(artifact: Artifact) -> bool:
    """Return whether each call under ``artifact`` chooses owners by holders, and chooses nothing else."""
    return artifact.choosing is None and artifact.plan.announces


def _ensure_rows(layout: Layout, scheme: str) -> None:
    if layout.width != layout.natural_width:
        message = f"{scheme} sums single elements, and rows are announced"
        raise TensorError(Diagnostic("not-announced", message, help="leave out 'unit: element'"))


def row_ids(given: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a copy of the row ids ``given``, of any shape, int64 [n]; raises TensorError (``unit-out-of-range``)."""
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        message = f"row ids are integers, not {given.dtype}"
        raise TensorError(Diagnostic("unsupported-dtype", message))
    if given.is_sparse:
        raise TensorError(Diagnostic("unsupported-layout", "row ids are a dense tensor", help="pass ids.to_dense()"))
    ids = given.detach().reshape(-1).to(torch.int64, copy=True)
    if ids.numel() and not ids.is_cuda:  # a kernel looks at those: the host would wait for the device
        least, most = (int(end) for end in torch.aminmax(ids))
        if least < 0 or most >= rows:
            wrong = most if least >= 0 else least + (1 << 64 if given.dtype is torch.uint64 else 0)
            raise TensorError(Diagnostic("unit-out-of-range", f"row {wrong} is not one of {rows:,}"))
    return ids
