"""Backend interface: prepare(layout) -> start(header) -> reduce(tensor) -> Reduction.

A backend runs one plan on one device. Its preparation serves all calls over tensors of one layout; a ``PreparedCall``
adds the common parts of all-reduces of one shape, dtype and operation. Operations are "sum" and "mean", which torch
calls ReduceOp.SUM and ReduceOp.AVG.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, SynchronisationError, TensorError, VerificationError
from zenc.plan.ir import PhaseKind, Plan
from zenc.runtime.compression.residual_store import TensorName, text_of
from zenc.runtime.cpu.headers import CallHeader
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.layout import Layout
from zenc.runtime.stats import CallStats, PhaseStats
from zenc.runtime.turns import Turn
from zenc.scheme.compression import Rounded

if TYPE_CHECKING:
    from zenc.runtime.compression.gpu_kernels import GpuCompression
    from zenc.runtime.compression.kernels import CompressionKernels
    from zenc.runtime.compression.losses import CallLosses


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


Operation = Literal["sum", "mean", "sum of int8", "sum of int16", "sum of int32", "sum of int64", "sum of uint8"]
"""Integers of each dtype have an operation of their own, as they are carried by floating-point numbers."""
NamedOperation = Literal["sum", "mean"]
OPERATIONS: tuple[NamedOperation, ...] = ("sum", "mean")
OpLike: TypeAlias = "NamedOperation | dist.ReduceOp | dist.ReduceOp.RedOpType"
"""An operation as users may name it."""
_OF_TORCH: tuple[tuple[object, NamedOperation], ...] = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "mean"))


def operation_of(given: OpLike) -> NamedOperation:
    """Return the operation that ``given`` names; raises TensorError (``unknown-operation``)."""
    if given == "sum" or given == "mean":
        return given
    said = repr(given)
    if isinstance(given, dist.ReduceOp):
        for known, operation in _OF_TORCH:
            if given == known:
                return operation
        said = f"ReduceOp.{getattr(given, 'name', '...')}"
    message = f"unknown operation {said}; one of {', '.join(OPERATIONS)}, or ReduceOp.SUM and ReduceOp.AVG"
    raise TensorError(Diagnostic("unknown-operation", message))


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """The common parts of calls.

    Only ranks of one call share the 64-bit ``signature``, and values are divided by ``divisor``.
    """

    communicator: Communicator
    layout: Layout
    prepared: Prepared
    signature: int
    divisor: int
    name: str = ""

    def named(self, name: TensorName) -> PreparedCall:
        """Return this call with the ``name`` of its tensor, which all ranks compare; "" is no name."""
        text = text_of(name)
        return replace(self, signature=self.signature ^ _digest_of(text), name=text) if name else self

    def start(self, number: int, losses: CallLosses | None = None) -> Call:
        """Begin call ``number`` of the group, of ranks with the same salt of ``losses``."""
        if losses is None:
            return self.prepared.start(CallHeader(number, self.signature, self.layout.units))
        return self.prepared.start(CallHeader(number, self.signature ^ losses.salt, self.layout.units), losses)

    def announce(self, units: torch.Tensor, number: int, turn: Turn) -> Announced:
        """Return the owners of the ``units`` [n] int64 of all ranks, and the statistics; None without elements.

        It runs on the worker's ``turn``; a call that fails here breaks the communicator.
        """
        self.communicator.ensure_healthy()
        if not self.layout.units or not self.layout.width:
            return None
        call = self.prepared.start_announce(CallHeader(number, self.signature, self.layout.units))
        try:
            return call.announce(units, turn), call.stats
        except BaseException as error:
            self.communicator.call_failed(error, call, turn)
            raise

    def _start_announced(self, number: int, owners: AgreedOwners) -> Call:
        return self.prepared.start_announced(CallHeader(number, self.signature, self.layout.units), owners)

    def run(
        self,
        tensor: torch.Tensor,
        number: int,
        turn: Turn,
        losses: CallLosses | None = None,
        owners: AgreedOwners | None = None,
    ) -> tuple[torch.Tensor, CallStats | None]:
        """Return the sum of ``tensor``, in its shape, and the statistics, which are None without elements.

        It runs on the worker's ``turn``. With the ``owners`` of announced units it has the next number, too. A call
        that fails here breaks the communicator: peers wait for it.
        """
        communicator, layout = self.communicator, self.layout
        communicator.ensure_healthy()
        if not layout.units or not layout.width:
            return (tensor.coalesce() if layout.is_sparse else tensor), None
        started = time.perf_counter()
        call = self.start(number, losses) if owners is None else self._start_announced(number, owners)
        try:
            found = call.reduce(tensor, self.divisor, turn)
        except BaseException as error:  # an interrupted call leaves peers waiting just the same
            told = self._with_tensor(error)
            communicator.call_failed(told, call, turn)
            if told is error:
                raise
            raise told from error
        seconds = time.perf_counter() - started, found.seconds_pack, found.seconds_expand
        counted = number, layout, communicator.size, found.counts_in, found.counts_out, call.stats
        return found.tensor, CallStats(*counted, *seconds, found.made_again, found.waited)

    def _with_tensor(self, error: BaseException) -> BaseException:
        """Return ``error`` with this rank's tensor, where others are in another call: they have only digests of it."""
        if not isinstance(error, SynchronisationError) or error.diagnostics[0].id != "different-calls":
            return error
        layout, called = self.layout, repr(self.name) if self.name else "a tensor without a name"
        note = f"this rank is at {called}, of shape {tuple(layout.shape)} and {layout.dtype}"
        return SynchronisationError([replace(each, notes=(*each.notes, note)) for each in error.diagnostics])


@lru_cache(maxsize=4096)
def _digest_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def signature_of(plan: str, layout: Layout, op: Operation, part: Part = None) -> int:
    """Return the signature in the headers of a call under the plan of digest ``plan``, or a ``part`` of it: 64 bits."""
    whole = plan, tuple(layout.shape), layout.sparse_dim, layout.dtype_name, op
    meaning = whole if part is None else (*whole, part.value if isinstance(part, PhaseKind) else part.name)
    return int.from_bytes(hashlib.sha256(repr(meaning).encode()).digest()[:8], "little")
