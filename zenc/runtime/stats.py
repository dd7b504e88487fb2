"""What a call did, counted while it ran: bytes by phase and format, units, imbalance, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zenc.scheme.model import Format

VALUES = "values"
"""What stands for a wire format where values travel alone, by holders."""


@dataclass(slots=True)
class PhaseStats:
    """One phase on one rank. Bytes include headers; ``formats`` counts the bodies alone."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    seconds: float = 0.0
    formats_sent: dict[str, int] = field(default_factory=dict)
    formats_received: dict[str, int] = field(default_factory=dict)

    def sent(self, size: int, messages: int = 1) -> None:
        """``messages`` of ``size`` bytes in all."""
        self.bytes_sent += size
        self.messages_sent += messages

    def received(self, size: int) -> None:
        self.bytes_received += size
        self.messages_received += 1

    def segment_received(self, format: Format, size: int, body: int) -> None:
        """A message of ``size`` bytes that carries one segment of ``body`` bytes."""
        self.bytes_received += size
        self.messages_received += 1
        self.formats_received[format] = self.formats_received.get(format, 0) + body

    def body_sent(self, format: Format, size: int) -> None:
        self.formats_sent[format] = self.formats_sent.get(format, 0) + size

    def body_received(self, format: Format, size: int) -> None:
        self.formats_received[format] = self.formats_received.get(format, 0) + size

    def values_sent(self, size: int) -> None:
        """Values without an index."""
        self.formats_sent[VALUES] = self.formats_sent.get(VALUES, 0) + size

    def values_received(self, size: int) -> None:
        self.formats_received[VALUES] = self.formats_received.get(VALUES, 0) + size

    def to_json(self, imbalance: float) -> dict[str, Any]:
        """As the dict under ``stats["phases"]``."""
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


def imbalance(counts: Sequence[int]) -> float:
    """The fullest part over the mean part (Zen, OSDI 2025, section 3: Push and Pull imbalance ratio); 1 is even."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


@dataclass(slots=True)
class CallStats:
    """What a call did, as counted; made readable only for who asks."""

    call: int
    units: int
    counts_in: list[int]
    counts_out: list[int]
    phases: Mapping[str, PhaseStats]
    seconds: float
    seconds_pack: float
    seconds_expand: float
    made_again: bool = False
    choice: dict[str, Any] | None = None
    """Of a scheme that chooses: the candidate that ran, and the seconds that it was expected to take."""

    @property
    def bytes_sent(self) -> int:
        """By this rank, headers included."""
        return sum(phase.bytes_sent for phase in self.phases.values())

    def to_json(self) -> dict[str, Any]:
        """As ``Collective.stats``."""
        units_in, units_out = sum(self.counts_in), sum(self.counts_out)
        return {
            "units": self.units,
            "units_in": units_in,
            "units_out": units_out,
            "density_in": units_in / self.units,
            "density_out": units_out / self.units,
            "bytes_sent": self.bytes_sent,
            "bytes_received": sum(phase.bytes_received for phase in self.phases.values()),
            "phases": {
                name: phase.to_json(imbalance(self.counts_out if name == "pull" else self.counts_in))
                for name, phase in self.phases.items()
            },
            "seconds": self.seconds,
            "seconds_pack": self.seconds_pack,
            "seconds_expand": self.seconds_expand,
            "call": self.call,
            "made_again": self.made_again,
            **({"choice": self.choice} if self.choice else {}),
        }
