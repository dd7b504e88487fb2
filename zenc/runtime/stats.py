"""What a call did, counted while it ran: bytes by phase and format, units, imbalance, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zenc.scheme.model import Format

if TYPE_CHECKING:
    from zenc.runtime.exchange import Exchange
    from zenc.runtime.segments import Segment


@dataclass(slots=True)
class PhaseStats:
    """One phase on one rank. Bytes include headers; ``formats`` counts the bodies alone."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    seconds: float = 0.0
    formats_sent: dict[Format, int] = field(default_factory=dict)
    formats_received: dict[Format, int] = field(default_factory=dict)

    def sent(self, size: int) -> None:
        self.bytes_sent += size
        self.messages_sent += 1

    def received(self, size: int) -> None:
        self.bytes_received += size
        self.messages_received += 1

    def body_sent(self, format: Format, size: int) -> None:
        self.formats_sent[format] = self.formats_sent.get(format, 0) + size

    def body_received(self, format: Format, size: int) -> None:
        self.formats_received[format] = self.formats_received.get(format, 0) + size

    def to_json(self, imbalance: float) -> dict[str, Any]:
        """As the dict under ``stats["phases"]``."""
        return {
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "messages_sent": self.messages_sent,
            "messages_received": self.messages_received,
            "formats_sent": {format.value: size for format, size in self.formats_sent.items()},
            "formats_received": {format.value: size for format, size in self.formats_received.items()},
            "imbalance": imbalance,
            "seconds": self.seconds,
        }


def imbalance(counts: Sequence[int]) -> float:
    """The fullest part over the mean part (Zen, OSDI 2025, section 3: Push and Pull imbalance ratio); 1 is even."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0


def call_stats(units: int, exchange: Exchange, own: list[Segment], complete: list[Segment]) -> dict[str, Any]:
    """What ``Collective.stats`` says of a call, but for its times."""
    push, pull = exchange.push_stats, exchange.pull_stats
    counts_in, counts_out = [segment.count for segment in own], [segment.count for segment in complete]
    units_in, units_out = sum(counts_in), sum(counts_out)
    return {
        "units": units,
        "units_in": units_in,
        "units_out": units_out,
        "density_in": units_in / units,
        "density_out": units_out / units,
        "bytes_sent": push.bytes_sent + pull.bytes_sent,
        "bytes_received": push.bytes_received + pull.bytes_received,
        "phases": {"push": push.to_json(imbalance(counts_in)), "pull": pull.to_json(imbalance(counts_out))},
    }
