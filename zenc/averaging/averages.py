"""Averages at work: the collectives of a rank's groups, and its parameters, with the vectors kept of them.

    Connected = Averaging  whole: Communicator  collective?*     # one for each step of a period; None: alone
    Fragment  = Bucket*                                          # the run of parameters of one average
    Bucket    = (name tensor)+  anchor? velocity?  flat? work?   # of one dtype and device, summed in one call

Under an outer optimizer the flat vector of a bucket is the change, ``anchor - parameters``, in float32 at least; the
optimizer steps from the anchor by the mean of it, which has the same bits on all ranks, so anchors stay equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from zenc.averaging.model import Averaging, Nesterov, Outer
from zenc.errors import CostError, Diagnostic, TensorError
from zenc.runtime.backend_api import Part
from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import writable
from zenc.runtime.call.planned_calls import Operation, PreparedCall
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.lossy.saved_state import ensure_held

BUCKET_BYTES = 25 << 20
"""Most bytes of tensors that are averaged in one call, as DDP's buckets are by default; a larger one goes alone."""
_SPREAD = 0x9E3779B97F4A7C15
"""An odd number, by which the numbers of steps become 64 bits that differ everywhere."""
KEPT = ("anchor", "velocity", "flat")
"""The vectors of a bucket that a state has, by the names of parameters."""

Named: TypeAlias = tuple[str, torch.Tensor]


class GroupCollective(Collective):
    """A collective of one group of an averaging, whose calls fit together only in the same ``step``."""

    step = 0

    def prepared(self, tensor: torch.Tensor, op: Operation, rows: bool, part: Part = None) -> PreparedCall:
        """Return the common parts of calls for ``tensor`` of any shape; their signature has the step."""
        prepared = super().prepared(tensor, op, rows, part)
        return replace(prepared, signature=prepared.signature ^ self.step * _SPREAD % 2**64)


def in_group(one: Collective) -> Collective:
    """Return the collective of a group; one that keeps residuals has counts of calls in its signatures already."""
    return one if one.keeper is not None else GroupCollective(one.artifact, one.communicator, one.backend_on)


@dataclass(frozen=True, slots=True)
class Connected:
    """An averaging among the ranks of ``whole``: the collective of this rank's group in each step of a period."""

    averaging: Averaging
    whole: Communicator
    collectives: tuple[Collective | None, ...]


@dataclass(slots=True)
class Bucket:
    """Parameters of one dtype and device; ``anchor`` and ``velocity`` [values] under an outer optimizer.

    ``flat`` [values] is under way from ``begin`` to ``finish``. Parameters may get other memory between steps.
    """

    named: tuple[Named, ...]
    anchor: torch.Tensor | None = None
    velocity: torch.Tensor | None = None
    flat: torch.Tensor | None = None
    work: Work | None = None

    def hold(self, outer: Outer) -> None:
        """Keep the present parameters as those that ``outer`` steps from."""
        self.anchor = self._joined().to(torch.promote_types(self.named[0][1].dtype, torch.float32), copy=True)
        self.velocity = torch.zeros_like(self.anchor) if isinstance(outer, Nesterov) else None

    def begin(self, collective: Collective | None, in_place: bool) -> None:
        """Begin the mean over the ranks of ``collective``; ``in_place`` a single contiguous tensor is its own room."""
        first = self.named[0][1].detach()
        if self.anchor is not None:
            self.flat = self.anchor - self._joined()
        elif in_place and len(self.named) == 1 and first.is_contiguous():
            self.flat = first.view(-1)
        else:
            self.flat = self._joined()
        pieces = [(name, tuple(each.shape)) for name, each in self.named]
        if collective is not None:
            self.work = collective.all_reduce(self.flat, "mean", async_op=True, name=pieces)

    def wait(self) -> None:
        """Wait for the sum; raises as ``all_reduce``."""
        if self.work is not None:
            self.work.wait()
            self.work = None

    def finish(self, outer: Outer | None, keep: float) -> None:
        """Give parameters the mean, or what ``outer`` makes of it; of their own they keep the share ``keep``."""
        assert self.flat is not None
        if outer is not None and self.anchor is not None:
            _step(outer, self.anchor, self.velocity, self.flat)
        found, self.flat = self.flat if self.anchor is None else self.anchor, None
        for (_, tensor), value in zip(self.named, self.views(found), strict=True):
            if value.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(value.lerp(tensor.detach().to(value.dtype), keep) if keep else value)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return the part of ``flat`` [values] that is of each parameter, in its shape."""
        parts = torch.split(flat, [each.numel() for _, each in self.named])
        return [part.view(each.shape) for part, (_, each) in zip(parts, self.named, strict=True)]

    def _joined(self) -> torch.Tensor:
        return torch.cat([each.detach().reshape(-1) for _, each in self.named])


Fragment: TypeAlias = Sequence[Bucket]


def _step(outer: Outer, anchor: torch.Tensor, velocity: torch.Tensor | None, change: torch.Tensor) -> None:
    """Move ``anchor`` [values] by the mean ``change`` [values], as ``torch.optim.SGD`` does by a gradient."""
    if isinstance(outer, Nesterov) and velocity is not None:
        velocity.mul_(outer.momentum).add_(change)
        change = change.add(velocity, alpha=outer.momentum)
    anchor.add_(change, alpha=-outer.lr)


def ensure_parameters(named: Iterable[Named]) -> list[Named]:
    """Return ``named``, each tensor once; raises TensorError for one that can't be averaged."""
    found = [(name, writable(each)) for name, each in {id(each[1]): each for each in named}.values()]
    for _, each in found:
        if each.layout is not torch.strided or not each.is_floating_point():
            message = f"dense floating-point parameters are averaged, and this is {each.dtype}, {each.layout}"
            raise TensorError(Diagnostic("unsupported-layout", message))
    return found


def fragments_of(named: Sequence[Named], count: int, outer: Outer | None) -> list[Fragment]:
    """Return ``named`` in ``count`` runs of about equally many values; under ``outer`` their present values are held.

    A parameter is in the run that its middle value falls in, so a run may be empty.
    """
    total, before, runs = sum(each.numel() for _, each in named), 0, [list[Named]() for _ in range(count)]
    for name, each in named:
        middle = 2 * before + each.numel()
        runs[min(count * middle // max(1, 2 * total), count - 1)].append((name, each))
        before += each.numel()
    found = [list(_buckets(run)) for run in runs]
    if outer is not None:
        for bucket in (each for fragment in found for each in fragment):
            bucket.hold(outer)
    return list(found)


def _buckets(named: Sequence[Named]) -> Iterator[Bucket]:
    """Yield buckets of one dtype and device, in their order, of ``BUCKET_BYTES`` at most."""
    alike: dict[tuple[torch.dtype, torch.device], list[Named]] = {}
    for name, tensor in named:
        alike.setdefault((tensor.dtype, tensor.device), []).append((name, tensor))
    for of_kind in alike.values():
        bucket: list[Named] = []
        for name, tensor in of_kind:
            if bucket and sum(each.nbytes for _, each in bucket) + tensor.nbytes > BUCKET_BYTES:
                yield Bucket(tuple(bucket))
                bucket = []
            bucket.append((name, tensor))
        yield Bucket(tuple(bucket))


def written(fragments: Sequence[Fragment]) -> dict[str, dict[str, torch.Tensor]]:
    """Return the vectors that ``fragments`` keep, by the names of parameters, in their shapes; sums are waited for."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for bucket in (each for fragment in fragments for each in fragment):
        bucket.wait()
        for kept in KEPT:
            if (vector := getattr(bucket, kept)) is not None:
                for (name, _), value in zip(bucket.named, bucket.views(vector), strict=True):
                    found.setdefault(name, {})[kept] = value.detach().to("cpu", copy=True)
    return found


def read_into(fragments: Sequence[Fragment], state: Any, under_way: Fragment) -> None:
    """Go on from what ``written`` has returned; raises CostError (``bad-state``), and then changes nothing."""
    ensure_held(state)
    buckets = [each for fragment in fragments for each in fragment]
    names = {name for bucket in buckets for name, _ in bucket.named}
    if not isinstance(state, Mapping) or (state.keys() != names and state):
        raise _bad("it is of other parameters")
    read = [{kept: _vector(bucket, kept, state, under_way) for kept in KEPT} for bucket in buckets]
    for bucket, vectors in zip(buckets, read, strict=True):
        for kept, vector in vectors.items():
            setattr(bucket, kept, vector)


def _vector(bucket: Bucket, kept: str, state: Mapping[str, Any], under_way: Fragment) -> torch.Tensor | None:
    needed = any(each is bucket for each in under_way) if kept == "flat" else getattr(bucket, kept) is not None
    values = [state.get(name, {}).get(kept) for name, _ in bucket.named]
    if all(value is None for value in values) and not needed:
        return None
    for value, (name, tensor) in zip(values, bucket.named, strict=True):
        if not isinstance(value, torch.Tensor) or value.shape != tensor.shape or not value.is_floating_point():
            raise _bad(f"the {kept} of '{name}' is missing, or of another shape")
    like = bucket.anchor if bucket.anchor is not None else bucket.named[0][1]
    return torch.cat([value.reshape(-1) for value in values]).to(like.device, like.dtype)


def _bad(why: str) -> CostError:
    return CostError(Diagnostic("bad-state", f"this state of an averager can't be gone on from: {why}"))
