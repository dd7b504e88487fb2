"""Backend interface: prepare(layout) -> start(header) -> reduce(tensor) -> Reduction.

A backend runs one plan on one device. Its preparation serves all calls over tensors of one layout; a ``PreparedCall``
adds the common parts of all-reduces of one shape, dtype and operation. Operations are "sum" and "mean", which torch
calls ReduceOp.SUM and ReduceOp.AVG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch

from zenc.errors import Diagnostic, TensorError, VerificationError
from zenc.plan.ir import PhaseKind, Plan
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import Layout
from zenc.runtime.call.stats import PhaseStats
from zenc.runtime.cpu.channel import CallHeader
from zenc.scheme.compression import Rounded

if TYPE_CHECKING:
    from zenc.runtime.lossy.gpu_kernels import GpuCompression
    from zenc.runtime.lossy.kernels import CompressionKernels
    from zenc.runtime.lossy.losses import CallLosses


class AgreedOwners:
    """Owners of units that were announced, as a backend keeps them for its calls."""

    __slots__ = ()


Announced: TypeAlias = "tuple[AgreedOwners, Mapping[str, PhaseStats]] | None"
"""Owners, and what was counted while the ranks found them; None for a tensor without elements."""


@dataclass(slots=True)  # not frozen: one is made in every call
class Reduction:
    """The sum, in the layout of the input, with its statistics: occupied units of each part, seconds.

    ``made_again``: the room of capacity mode was too small, or an announcement was wrong. ``waited``: peer ->
    seconds of waiting for it; None where that is not measured.
    """

    tensor: torch.Tensor
    counts_in: list[int]
    counts_out: list[int]
    seconds_pack: float
    seconds_expand: float
    made_again: bool = False
    waited: dict[int, float] | None = None


class Call(Protocol):
    """A call of one rank: the header first, then the tensor."""

    @property
    def stats(self) -> Mapping[str, PhaseStats]:
        """Statistics by phase, in order."""

    def reduce(self, tensor: torch.Tensor, divisor: int, turn: Turn) -> Reduction:
        """Sum ``tensor``, of any shape, over all ranks, each value divided by ``divisor`` first; dense in place.

        It may pass on its ``turn`` when all that is left depends on other ranks, and then settles before it writes the
        result.
        """


class UnitsCall(Protocol):
    """A call of one rank that tells the others its future units: the header first, then their ids."""

    @property
    def stats(self) -> Mapping[str, PhaseStats]:
        """Statistics by phase, in order."""

    def announce(self, units: torch.Tensor, turn: Turn) -> AgreedOwners:
        """Return the owners of the ``units`` [n] int64 of all ranks; ``turn`` is as in ``Call.reduce``."""


class Prepared(Protocol):
    """A backend, ready for tensors of one layout."""

    def start(self, header: CallHeader, losses: CallLosses | None = None) -> Call:
        """Begin a call whose messages carry ``header``, and which selects and encodes as ``losses`` says."""

    def ensure_announces(self) -> None:
        """Raise TensorError (``not-announced``) where a plan by holders can't be played in two calls."""

    def start_announce(self, header: CallHeader) -> UnitsCall:
        """Begin a call of a plan by holders that announces units, and whose messages carry ``header``."""

    def start_announced(self, header: CallHeader, owners: AgreedOwners) -> Call:
        """Begin a call on units with these ``owners``, whose messages carry ``header``, or the next number."""


Part: TypeAlias = "PhaseKind | Rounded | None"
"""The part of a plan that a call makes: phases of one kind; all of them, rounded by a code; None: the whole plan."""


class Backend(Protocol):
    """A plan on one device. ``code``: the library or the GPU that runs it, for logs."""

    code: str

    @property
    def compression(self) -> CompressionKernels | GpuCompression:
        """The kernels of compression for this device, for plans that select or encode."""

    def prepare(self, layout: Layout, part: Part = None) -> Prepared:
        """Prepare for tensors of ``layout``; raises TensorError for one that is too large.

        ``part``: the pushes or the pulls alone, whose results are sparse; or all, ``rounded`` on the way.
        """

    def rounds(self, code: Rounded) -> bool:
        """Return whether values can travel as ``code`` where the plan has none, and the losses of ``code`` are kept."""


def is_proved(lower: Callable[[], object]) -> bool:
    """Return whether ``lower``, which lowers and proves a program, raises no VerificationError."""
    try:
        lower()
    except VerificationError:
        return False
    return True


def not_alone(scheme: str, reason: str, help: str) -> TensorError:
    """Return the error of a scheme whose pushes and pulls are no calls of their own."""
    message = f"'{scheme}' can't push or pull alone: {reason}"
    return TensorError(Diagnostic("phase-not-alone", message, help=help))


def ensure_halves(plan: Plan, name: str, chooses: bool) -> None:
    """Raise TensorError (``phase-not-alone``) where push and pull of the scheme ``name`` mean nothing alone.

    Its plan is ``plan``; or it ``chooses`` among other schemes.
    """
    if chooses:
        raise not_alone(name, "it chooses among schemes with other owners", "load one of them")
    if plan.announces or plan.across is not None:
        reason = "each call chooses the owners of its units, from who holds them"
        raise not_alone(plan.scheme, reason, "load a scheme with another balance, such as 'balanced'")
    if plan.is_lossy or plan.feedback is not None:
        reason = "what it leaves out of a gradient is kept by whole calls"
        raise not_alone(plan.scheme, reason, "load a scheme that loses nothing, such as 'balanced'")
