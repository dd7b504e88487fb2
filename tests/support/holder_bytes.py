"""The bytes of a call by holders, row by row: an oracle for the run time and for ``zenc.analysis.exact_traffic``.

announce  header, and for every set a segment header and its index, in the smallest format
push      header, and the rows of each piece, padded to 8 bytes; a message without rows is not sent
pull      the same, of whole parts

A directory has a segment header, an index and 2 bytes an owner for each of its parts; pieces then have an index.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.scheme.model import Format
from zenc.verify.proof import verify
from zenc.verify.provenance import Deliveries
from zenc.wire.formats import index_bytes, padded, wire_format
from zenc.wire.partitioning import dealt, named_owners, owners_of
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES


def zipf_units(units: int, density: float, exponent: float, seed: int) -> np.ndarray:
    """Draw the distinct units of a batch of tokens by Zipf's law (unit = place in frequency)."""
    rng = np.random.default_rng(seed)
    cumulated = np.cumsum(1.0 / np.arange(1, units + 1) ** exponent)
    cumulated /= cumulated[-1]
    wanted, tokens, found = int(units * density), np.empty(0, np.int64), np.empty(0, np.int64)
    while found.size < wanted:
        tokens = np.concatenate([tokens, np.searchsorted(cumulated, rng.random(wanted))])
        found, first = np.unique(tokens, return_index=True)
    return np.sort(tokens[np.sort(first)][:wanted])


def zipf_holders(
    ranks: int, units: int = 200_000, density: float = 0.02, exponent: float = 1.05, seed: int = 1
) -> np.ndarray:
    """Draw which rank holds which unit: [ranks, units]."""
    held = np.zeros((ranks, units), bool)
    for rank in range(ranks):
        held[rank, zipf_units(units, density, exponent, 1000 * seed + rank)] = True
    return held


def bound(held: np.ndarray) -> float:
    """Return B2, in messages of one row."""
    holders = held.sum(0)
    return float((len(held) + holders[holders > 0] - 2).sum()) / len(held)


def busiest(held: np.ndarray, owners: np.ndarray) -> float:
    """Return the most messages of a rank when the owner of each unit sums it and sends it to all."""
    ranks, present = len(held), held.any(0)
    held, owners = held[:, present], owners[present]
    holders, most = held.sum(0), 0
    for rank in range(ranks):
        own = owners == rank
        sent = (held[rank] & ~own).sum() + (ranks - 1) * own.sum()
        received = (own * (holders - held[rank])).sum() + (~own).sum()
        most = max(most, int(sent), int(received))
    return float(most)


@dataclass(frozen=True, slots=True, eq=False)
class RoundBytes:
    """The messages of one round, one entry each; ``number`` counts the rounds of ``kind`` from 1."""

    kind: str
    number: int
    src: Ints
    dst: Ints
    bytes: Ints


def weigh_by_holders(plan: Plan, units: int, unit_bytes: int, held: Sequence[Ints]) -> tuple[RoundBytes, ...]:
    """Return all messages of a call in which rank r holds the unit ids ``held[r]``, ascending, of ``units``.

    Raise VerificationError where ``plan`` is wrong among these ranks.
    """
    scales = _Scales(plan, units, unit_bytes, held)
    verify(plan, len(held), scales.observe)
    return tuple(scales.rounds)


class _Scales:
    """Weights of every delivery that the verifier plays."""

    def __init__(self, plan: Plan, units: int, unit_bytes: int, held: Sequence[Ints]) -> None:
        self.plan, self.unit_bytes, self.size = plan, unit_bytes, len(held)
        self.rounds: list[RoundBytes] = []
        self.by_directory = plan.by_directory(self.size)
        present, self.owners = named_owners(held, units) if self.by_directory else owners_of(held)
        self.held = np.zeros((self.size, len(present)), dtype=bool)
        for rank, ids in enumerate(held):
            self.held[rank, np.searchsorted(present, ids)] = True
        self.slots = np.bincount(self.owners, minlength=self.size)
        self.sets = np.array([_set_bytes(units, len(ids)) for ids in held], dtype=np.int64)
        part, among = dealt(units, self.size).part, -(-units // self.size)
        self.dealt = np.array(
            [[_set_bytes(among, int((part[ids] == number).sum())) for number in range(self.size)] for ids in held]
        )
        named = np.bincount(part[present], minlength=self.size).tolist()
        self.named = [_set_bytes(among, count) + padded(2 * count) for count in named]
        self.known: dict[tuple[int, bytes], int] = {}

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        pairs, index = np.unique(moved.src * self.size + moved.dst, return_inverse=True)
        weights = np.array([self._row(phase, moved, row) for row in range(len(moved.src))], dtype=np.int64)
        bytes = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(bytes, index.reshape(-1), weights)
        sent = bytes > 0
        src, dst = np.divmod(pairs[sent], self.size)
        self.rounds.append(RoundBytes(phase.kind.value, number, src, dst, bytes[sent] + MESSAGE_HEADER_BYTES))

    def _row(self, phase: Phase, moved: Deliveries, row: int) -> int:
        """Return a part of a message, without the message's header."""
        part = int(moved.part[row])
        if phase.kind is PhaseKind.PULL:
            return padded(int(self.slots[part]) * self.unit_bytes)
        if phase.kind is PhaseKind.DIRECTORY:
            return self.named[part]
        ranks = np.flatnonzero(np.unpackbits(moved.members[row].view(np.uint8), count=self.size, bitorder="little"))
        if phase.kind is PhaseKind.ANNOUNCE:
            return int(self.dealt[ranks, part].sum() if self.by_directory else self.sets[ranks].sum())
        pieces = [np.array([rank]) for rank in ranks] if phase.keeps_apart else [ranks]
        counts = [self._count(part, piece) for piece in pieces]
        index = sum(_set_bytes(int(self.slots[part]), count) for count in counts) if self.by_directory else 0
        return index + sum(padded(count * self.unit_bytes) for count in counts)

    def _count(self, part: int, ranks: Ints) -> int:
        """Return how many units of ``part`` some of ``ranks`` hold."""
        key = part, ranks.tobytes()
        if key not in self.known:
            self.known[key] = int((self.held[ranks][:, self.owners == part]).any(axis=0).sum())
        return self.known[key]


def _set_bytes(units: int, count: int) -> int:
    return SEGMENT_HEADER_BYTES + index_bytes(wire_format(Format.AUTO, units, count), units, count)
