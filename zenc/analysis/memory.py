"""The most memory that every rank needs, expected at a stated density.

    RankMemory = rank buffers phase number                        # the greatest sum of its buffers, and in which step

``zenc.analysis.memory_model`` says what is counted, and finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zenc.errors import Diagnostic
from zenc.format_units import size_text
from zenc.plurals import count
from zenc.topology.model import Topology

BUFFERS = ("gradient", "segments", "index_sets", "messages", "result")


@dataclass(frozen=True, slots=True)
class RankMemory:
    """The memory that ``rank`` needs in step ``number`` of ``phase``; 0 is before the first, and after the last.

    ``buffers`` are the bytes of each of BUFFERS.
    """

    rank: int
    buffers: tuple[int, ...]
    phase: str
    number: int

    @property
    def bytes(self) -> int:
        """The sum of all buffers."""
        return sum(self.buffers)

    @property
    def when(self) -> str:
        """The step in words: ``push, step 3``."""
        return f"{self.phase}, step {self.number}" if self.number else self.phase

    def text(self) -> str:
        """``gradient 2.7 MB, segments 40 MB``: what there is of them."""
        named = zip(BUFFERS, self.buffers, strict=True)
        return ", ".join(f"{name.replace('_', ' ')} {size_text(bytes)}" for name, bytes in named if bytes)


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """``needs[rank]``, and what the topology has: None where it does not say."""

    topology: Topology
    needs: tuple[RankMemory, ...]

    @property
    def greatest(self) -> RankMemory:
        """The memory of the rank that needs most."""
        return max(self.needs, key=lambda memory: memory.bytes)

    def to_json(self) -> dict[str, Any]:
        """JSON data: bytes that ranks and hosts need and have."""
        return {
            "ranks": [
                {
                    "rank": memory.rank,
                    "needs": memory.bytes,
                    "has": self.topology.memory(memory.rank),
                    "when": memory.when,
                    "buffers": dict(zip(BUFFERS, memory.buffers, strict=True)),
                }
                for memory in self.needs
            ],
            "hosts": [
                {"host": host.name, "needs": self.of_host(host.ranks), "has": host.memory}
                for host in self.topology.hosts
            ],
        }

    def of_host(self, ranks: tuple[int, ...]) -> int:
        """The bytes that the ranks of a machine need together, where their buffers lie in its memory."""
        return sum(self.needs[rank].bytes for rank in ranks)

    def problems(self) -> list[Diagnostic]:
        """The devices and the machines whose memory is too small: one diagnostic for all of each."""
        return [*self._devices(), *self._hosts()]

    def _devices(self) -> list[Diagnostic]:
        small = [
            (memory, has)
            for memory in self.needs
            if (has := self.topology.memory(memory.rank)) is not None and has < memory.bytes
        ]
        if not small:
            return []
        memory, has = max(small, key=lambda each: each[0].bytes - each[1])
        message = (
            f"rank {memory.rank} needs {size_text(memory.bytes)} of memory ({memory.when}), and has {size_text(has)}"
        )
        others = len(small) - 1
        more = (
            memory.text(),
            *((f"so {'does' if others == 1 else 'do'} {count(others, 'other rank')}",) if others else ()),
        )
        return [Diagnostic("memory-exceeded", message, None, more, _ADVICE)]

    def _hosts(self) -> list[Diagnostic]:
        needs = [(host, self.of_host(host.ranks)) for host in self.topology.hosts]
        small = [(host, bytes) for host, bytes in needs if host.memory is not None and host.memory < bytes]
        if not small:
            return []
        host, bytes = max(small, key=lambda each: each[1])
        has = size_text(host.memory or 0)
        message = f"the ranks of {host.name} need {size_text(bytes)} of memory together, and it has {has}"
        more = (f"so do those of {count(len(small) - 1, 'other machine')}",) if len(small) > 1 else ()
        return [Diagnostic("memory-exceeded", message, None, more, _ADVICE)]


_ADVICE = "send sparser gradients, cut the tensor in more parts, or in smaller tensors"
