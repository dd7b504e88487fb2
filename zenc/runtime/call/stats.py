"""Statistics of a call, counted while it runs: bytes by phase and format, units, imbalance, seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, overload

from zenc.common.wording import dotted_like
from zenc.errors import Diagnostic, SchemeError
from zenc.plan.ir import PhaseKind
from zenc.runtime.call.layout import Layout
from zenc.scheme.model import Format

VALUES = "values"
"""The name in place of a wire format where values travel alone, by holders."""


class PhaseReport(TypedDict):
    """A phase on this rank: bytes with headers, bodies alone by wire format, and seconds with the waiting in them."""

    bytes_sent: int
    bytes_received: int
    messages_sent: int
    messages_received: int
    formats_sent: dict[str, int]
    formats_received: dict[str, int]
    imbalance: float
    seconds: float


class ChoiceReport(TypedDict):
    """The scheme that made a call, and its expected seconds; None before these are known.

    ``trial``: it was tried, and not chosen yet. ``seconds_of_first``: those expected of the first candidate.
    """

    scheme: str
    seconds_expected: float | None
    trial: bool
    seconds_of_first: float | None


class LossReport(TypedDict):
    """The loss of a call on this rank: norms of its gradient, and of the residual for the next call.

    ``compression_ratio``: bytes of a dense ring all-reduce over those that were sent. ``part_bytes``: those of each
    part's encoded sum, under ``balanced by encoded``; otherwise empty.
    """

    gradient_norm: float
    residual_norm: float
    residual_over_gradient: float
    compression_ratio: float
    part_bytes: list[int]


class CallReport(TypedDict, total=False):
    """A report of ``Collective.stats``: empty before the first call.

    ``choice`` is that of a scheme that chooses alone, ``loss`` of one that selects or keeps residuals, ``rule`` and
    ``scheme`` are those of a strategy.
    ``waited``: peer -> seconds of waiting for it; empty where that is not measured.
    ``tables``: for a call of several, name -> rows of its sum.
    """

    units: int
    units_in: int
    units_out: int
    density_in: float
    density_out: float
    bytes_sent: int
    bytes_received: int
    phases: dict[str, PhaseReport]
    seconds: float
    seconds_pack: float
    seconds_expand: float
    waited: dict[int, float]
    call: int
    made_again: bool
    choice: ChoiceReport
    loss: LossReport
    rule: str
    scheme: str
    tables: dict[str, int]


Other = TypeVar("Other")


class UnknownReport(SchemeError, KeyError):
    """The error of a name that no call has, which users of a mapping catch as KeyError."""


def _unknown(name: str, known: Collection[str]) -> UnknownReport:
    message = f"there are no statistics of '{name}': no call of a parameter of this name has ended"
    help = dotted_like(name, known) or (f"those there are: {', '.join(known)}" if known else "make a step first")
    return UnknownReport(Diagnostic("unknown-parameter", message, help=help))


class CallReports(dict[str, CallReport]):
    """Reports by the names of calls, each listed once. A parameter that was ``called_in`` one with others finds it.

    ``in`` and ``get`` find it, too; ``len`` and loops are about calls.
    """

    def __init__(self, reports: Mapping[str, CallReport], called_in: Mapping[str, str]) -> None:
        super().__init__(reports)
        self._called_in = {name: call for name, call in called_in.items() if name not in reports and call in reports}

    def __missing__(self, name: str) -> CallReport:
        if name not in self._called_in:
            raise _unknown(name, [*self, *self._called_in])
        return self[self._called_in[name]]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._called_in

    @overload
    def get(self, name: str, default: None = None, /) -> CallReport | None: ...
    @overload
    def get(self, name: str, default: CallReport, /) -> CallReport: ...
    @overload
    def get(self, name: str, default: Other, /) -> CallReport | Other: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the report of a call, or of one of its parameters; ``default`` without any."""
        return super().get(self._called_in.get(name, name), default)


@dataclass(slots=True)
class PhaseStats:
    """A phase on one rank; bytes include headers, and ``formats`` counts the bodies alone."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    seconds: float = 0.0
    formats_sent: dict[str, int] = field(default_factory=dict)
    formats_received: dict[str, int] = field(default_factory=dict)

    def sent(self, size: int, messages: int = 1) -> None:
        """Count ``messages`` of ``size`` bytes in all."""
        self.bytes_sent += size
        self.messages_sent += messages

    def received(self, size: int) -> None:
        """Count a message of ``size`` bytes."""
        self.bytes_received += size
        self.messages_received += 1

    def body_sent(self, format: str, size: int) -> None:
        """Count ``size`` bytes of a segment's body in ``format``, or of VALUES."""
        self.formats_sent[format] = self.formats_sent.get(format, 0) + size

    def body_received(self, format: str, size: int) -> None:
        """Count ``size`` bytes of a segment's body in ``format``, or of VALUES."""
        self.formats_received[format] = self.formats_received.get(format, 0) + size

    def add(self, other: PhaseStats) -> None:
        """Count all that ``other`` has counted, too."""
        self.bytes_sent += other.bytes_sent
        self.bytes_received += other.bytes_received
        self.messages_sent += other.messages_sent
        self.messages_received += other.messages_received
        self.seconds += other.seconds
        for format, size in other.formats_sent.items():
            self.body_sent(format, size)
        for format, size in other.formats_received.items():
            self.body_received(format, size)

    def to_json(self, imbalance: float) -> PhaseReport:
        """Return the dict under ``stats["phases"]``."""
        return {
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "messages_sent": self.messages_sent,
            "messages_received": self.messages_received,
            "formats_sent": {_name(format): size for format, size in self.formats_sent.items()},
            "formats_received": {_name(format): size for format, size in self.formats_received.items()},
            "imbalance": imbalance,
            "seconds": self.seconds,
        }


def _name(format: str) -> str:
    return format.value if isinstance(format, Format) else format


def added(first: Mapping[str, PhaseStats], second: Mapping[str, PhaseStats]) -> dict[str, PhaseStats]:
    """Return the sum of both counts by phase, in the order of ``first``."""
    found = {name: PhaseStats() for name in (*first, *second)}
    for name, phase in (*first.items(), *second.items()):
        found[name].add(phase)
    return found


def imbalance(counts: Sequence[int]) -> float:
    """Return the fullest part over the mean part, 1 if even (Zen, OSDI 2025, section 3: imbalance ratio)."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


@dataclass(slots=True)
class CallStats:
    """The statistics of a call; made readable only when asked for."""

    call: int
    layout: Layout
    size: int
    counts_in: list[int]
    counts_out: list[int]
    phases: Mapping[str, PhaseStats]
    seconds: float
    seconds_pack: float
    seconds_expand: float
    made_again: bool = False
    waited: dict[int, float] | None = None
    choice: ChoiceReport | None = None
    """The candidate of a scheme that chooses, and the seconds that were expected of it."""
    loss: LossReport | None = None
    tables: dict[str, int] | None = None
    """The rows of the sum of each table, by name, in a call of several."""

    @property
    def units(self) -> int:
        """The units of the tensor."""
        return self.layout.units

    @property
    def bytes_sent(self) -> int:
        """The bytes that this rank sent, headers included."""
        return sum(phase.bytes_sent for phase in self.phases.values())

    @property
    def bytes_received(self) -> int:
        """The bytes that this rank received, headers included."""
        return sum(phase.bytes_received for phase in self.phases.values())

    @property
    def dense_bytes(self) -> float:
        """Bytes that a rank sends in a ring all-reduce of the whole tensor: 2 (n - 1) / n of it."""
        return 2 * (self.size - 1) / self.size * self.layout.nbytes

    @property
    def gathered_bytes(self) -> float:
        """The bytes of this rank's rows and their int64 indices, sent to all others, as gloo sums sparse tensors."""
        layout = self.layout
        per_unit = 8 * max(1, layout.sparse_dim) + layout.width * layout.dtype.itemsize
        return (self.size - 1) * sum(self.counts_in) * per_unit

    def to_json(self) -> CallReport:
        """Return the dict of ``Collective.stats``; bytes and seconds."""
        units_in, units_out = sum(self.counts_in), sum(self.counts_out)
        of_sum = (self.loss and self.loss["part_bytes"]) or self.counts_out
        report: CallReport = {
            "units": self.units,
            "units_in": units_in,
            "units_out": units_out,
            "density_in": units_in / self.units,
            "density_out": units_out / self.units,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "phases": {
                name: phase.to_json(imbalance(of_sum if name == PhaseKind.PULL else self.counts_in))
                for name, phase in self.phases.items()
            },
            "seconds": self.seconds,
            "seconds_pack": self.seconds_pack,
            "seconds_expand": self.seconds_expand,
            "waited": dict(sorted((self.waited or {}).items())),
            "call": self.call,
            "made_again": self.made_again,
        }
        if self.loss:
            report["loss"] = self.loss
        if self.tables:
            report["tables"] = self.tables
        return {**report, "choice": self.choice} if self.choice else report
