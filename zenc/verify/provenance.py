"""Provenance: the set of ranks whose contributions each rank holds of each part, while the moves are played.

    have[rank, part]         = the ranks whose contributions ``rank`` holds of ``part``, as bits
    fingerprints[rank, part] = the fingerprint of the order in which they were added
    pieces[rank, part]       = the pieces that make them up, as bits: each by the rank that held it when the phase began

Every rank begins with its own contribution to each part. A push brings contributions together: under incremental
aggregation a rank merges received pieces with its own, into one piece; under one-shot aggregation pieces are kept apart
until the phase ends. A pull hands complete parts on. A round is the moves that run together, each of some parts from
one rank to another. Playing a round gives its deliveries, one row for every part of every move, or the diagnostics of a
break of the rule that each contribution is counted exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zenc.common.wording import count
from zenc.errors import Diagnostic
from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import SET_KINDS, Phase, Plan
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Round, Rounds
from zenc.verify.losses import Losses
from zenc.wire.mix import Words, mix

_NOBODY: Words = np.zeros((0, 1), dtype=np.uint64)
MOST_MERGED = 1 << 14
"""Most pairs of rank and part whose sets are unpacked, or whose fingerprints are made, at once."""
_COPIES = 4
"""Copies of the sets of all ranks that a proof takes."""
MOST_NAMED = 6
"""Most ranks that a message names before it counts the others."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The deliveries of one round: one row for every part of every move, [rows] each.

    ``src`` sends ``part`` to ``dst``: all its pieces if ``origin`` is below 0, otherwise only the piece of ``origin``.
    ``line`` is the number of the send in the schedule. ``contributors`` counts the ranks whose contributions are
    delivered, ``pieces`` the pieces that are kept apart; ``members`` [rows, words] are those ranks, as bits, in a push,
    and where not all ranks contribute to a complete part.
    ``holders`` [rows, words] are, under one-shot aggregation, the ranks that held those pieces when the phase began,
    and ``begun`` [size, parts, words] whose contributions they then held, unless that was each its own.
    """

    src: Ints
    dst: Ints
    part: Ints
    origin: Ints
    line: Ints
    contributors: Ints
    pieces: Ints
    members: Words
    holders: Words
    begun: Words


class Provenance:
    """The state of all ranks: ``begin`` a phase, ``push`` or ``pull`` its rounds, and ``end_push`` after a push.

    ``push`` and ``pull`` return the diagnostics of the round; without any, ``deliveries`` are those of the round.
    """

    def __init__(self, rounds: Rounds, plan: Plan | None = None, members: int | None = None) -> None:
        """Begin with each rank's own contribution; ``members`` ranks contribute to a complete part, by default all."""
        self.rounds, self.size, self.parts = rounds, rounds.size, rounds.parts
        self.contributors = members or rounds.size
        self.have = own_contributions(self.size, self.parts)
        ranks = np.arange(self.size, dtype=np.uint64)
        self.fingerprints: Words = np.repeat(mix(ranks + np.uint64(1))[:, None], self.parts, axis=1)
        self.phase, self.pushes_ended = rounds.phases[0].phase, 0
        self.pieces = self.have
        self.begun = self.have
        """``have`` as it was when the phase began."""
        self.deliveries: Deliveries | None = None
        self.losses = Losses(plan, self.fingerprints) if plan is not None and plan.is_lossy else None
        self.step = 0
        """The number of steps played in all phases."""

    def hold(self, owned: Mask, fingerprints: Words) -> None:
        """Begin with the pulls: every rank has the parts that it has ``owned`` [size, parts], complete, and no others.

        ``fingerprints`` [size, parts] are those of their sums.
        """
        everyone = np.bitwise_or.reduce(own_contributions(self.size, 1)[:, 0], axis=0)
        self.have = self.pieces = np.where(owned[:, :, None], everyone, np.uint64(0))
        self.fingerprints = np.where(owned, fingerprints, np.uint64(0))

    def begin(self, phase: Phase, played: Sequence[Round] = ()) -> None:
        """Open a phase, to be ``played``. In the first ``pieces`` is ``have``: every rank holds what it contributed."""
        self.phase = phase
        if self.losses is not None:
            parts = {part for round_ in played for part in np.unique(by_part(round_).part).tolist()}
            self.losses.begin(phase, self.complete(), sorted(parts))
        if phase.keeps_apart and self.pushes_ended:
            self.pieces, self.begun = own_contributions(self.size, self.parts), self.have.copy()

    def push(self, round_: Round, number: int) -> list[Diagnostic]:
        """Play round ``number`` of the push: received pieces join those held."""
        rows = by_part(round_)
        self.step += 1
        sent = self.have[rows.src, rows.part]
        one = np.ones((len(sent), 1), dtype=np.uint64)
        pieces = self.pieces[rows.src, rows.part] if self.phase.keeps_apart else one
        return self._restrict(rows, sent, pieces, number) or self._join(rows, sent, pieces, number)

    def _restrict(self, rows: Deliveries, sent: Words, pieces: Words, number: int) -> list[Diagnostic]:
        """Cut ``sent`` and ``pieces``, in place, to one rank's piece in the rows that forward only that."""
        limited = rows.origin >= 0
        if not limited.any():
            return []
        if not self.phase.keeps_apart:
            line = int(rows.line[int(np.argmax(limited))])
            message = "'of' forwards what one rank contributed, but incremental aggregation has merged it with the rest"
            return [self._at(line, "origin-merged", message, help="use aggregation: one_shot, or leave out 'of'")]
        origin = np.where(limited, rows.origin, 0)
        only = np.zeros_like(pieces)
        only[np.arange(len(origin)), origin // 64] = bit_of(origin)
        lacking = limited & ((pieces & only).any(axis=1) == 0)
        if lacking.any():
            row = int(np.argmax(lacking))
            src, part = int(rows.src[row]), int(rows.part[row])
            contribution = self._contribution(int(rows.origin[row]), part)
            message = f"rank {src} has nothing of {contribution} to send ({self.phase.name}, step {number})"
            return [self._at(int(rows.line[row]), "nothing-to-send", message, (self._holds(src, part),))]
        pieces[limited] = only[limited]
        sent[limited] = self.begun[origin, rows.part][limited] if self.pushes_ended else only[limited]
        return []

    def _join(self, rows: Deliveries, sent: Words, pieces: Words, number: int) -> list[Diagnostic]:
        """Join the ``sent`` pieces with those of their receivers, unless a contribution would be there twice."""
        place = rows.dst * self.parts + rows.part
        order = np.lexsort((rows.src, place))
        starts = _starts(place[order])
        dst, part = rows.dst[order][starts], rows.part[order][starts]
        contributors = set_sizes(sent)
        joined = np.bitwise_or.reduceat(sent[order], starts, axis=0) | self.have[dst, part]
        added = set_sizes(self.have[dst, part]) + np.add.reduceat(contributors[order], starts)
        twice = set_sizes(joined) != added
        if twice.any():
            first = int(np.argmax(twice))
            return [self._twice(rows, np.split(order, starts[1:])[first], number)]
        if found := self._encode(rows, number):
            return found
        if not self.phase.keeps_apart:
            self._merge_arrived(rows, order, starts)
        elif self.pieces is not self.have:
            self.pieces[dst, part] |= np.bitwise_or.reduceat(pieces[order], starts, axis=0)
        self.have[dst, part] = joined
        self.deliveries = replace(
            rows,
            contributors=contributors,
            pieces=set_sizes(pieces),
            members=sent,
            holders=pieces if self.phase.keeps_apart else _NOBODY,
            begun=self.begun if self.phase.keeps_apart and self.pushes_ended else _NOBODY,
        )
        return []

    def _encode(self, rows: Deliveries, number: int) -> list[Diagnostic]:
        """Encode the own pieces that ranks send first, where the phase has a code."""
        if self.losses is None:
            return []
        own = np.ones(len(rows.src), dtype=np.bool_)
        if self.phase.keeps_apart:
            own = (rows.origin < 0) | (rows.origin == rows.src)
        wrong = self.losses.push(rows.src[own], rows.part[own], self.step)
        if wrong is None:
            return []
        row, found = wrong
        at = self._at(int(rows.line[own][row]), found.id, found.message, help=found.help)
        where = f"in the {self.phase.name}, step {number}" + (f": {at.span}" if at.span else "")
        return [replace(at, span=self.phase.code_span or at.span, notes=(where, *at.notes))]

    def _merge_arrived(self, rows: Deliveries, order: Ints, starts: Ints) -> None:
        """Fingerprint the merges of receivers: received pieces and their own, in the order of the ranks that held them.

        ``order`` sorts the rows by receiver and part, and each of these begins at one of ``starts``.
        """
        dst, part = rows.dst[order], rows.part[order]
        receiver, received = dst[starts], part[starts]
        holder, parts = np.r_[rows.src[order], receiver], np.r_[part, received]
        place = np.r_[dst, receiver] * self.parts + parts
        by_place = np.lexsort((holder, place))
        holder, parts, place = holder[by_place], parts[by_place], place[by_place]
        self._sum((receiver, received), holder, parts, self.fingerprints[holder, parts], place)
        if self.losses is not None:
            self.losses.select_merged(receiver, received)

    def _sum(self, places: tuple[Ints, Ints], rank: Ints, part: Ints, fingerprints: Words, keys: Ints) -> None:
        """Give ``places`` the fingerprints of sums of pieces of ``rank`` and ``part``; equal ``keys`` are one place."""
        result = _in_order(fingerprints, keys)
        if self.losses is not None:
            self.losses.merge(places, (rank, part, fingerprints), _starts(keys), result)
        self.fingerprints[places] = result

    def end_push(self, last: bool) -> None:
        """Merge the pieces that were kept apart, in the order of the ranks that held them when the phase began."""
        if self.phase.keeps_apart and last and not self.pushes_ended:
            self._sum_all(np.nonzero(self.complete()))
        elif self.phase.keeps_apart:
            chosen = self.complete() if last else set_sizes(self.pieces) > 1
            self._merge_pieces(np.argwhere(chosen))
        self.pushes_ended += 1

    def _sum_all(self, places: tuple[Ints, ...]) -> None:
        """Give ``places`` the fingerprint of all ranks' contributions, added in rank order, wherever it is merged."""
        if self.losses is not None and len(places[0]):
            self.losses.merge_all((places[0], places[1]), np.zeros(len(places[0]), dtype=np.uint64))
        self.fingerprints[places] = 0

    def _merge_pieces(self, places: Ints) -> None:
        before = self.fingerprints.copy()
        for start in range(0, len(places), MOST_MERGED):
            rank, part = places[start : start + MOST_MERGED].T
            row, holder = members_of(self.pieces[rank, part])
            if len(row):
                self._sum((rank, part), holder, part[row], before[holder, part[row]], row)

    def pull(self, round_: Round, number: int) -> list[Diagnostic]:
        """Play round ``number`` of the pull: received parts are complete and replace those held."""
        rows = by_part(round_)
        self.step += 1
        complete = self.complete(rows.src, rows.part)
        if not complete.all():
            return [self._unfinished(rows, int(np.argmin(complete)), number)]
        place = rows.dst * self.parts + rows.part
        again = self.complete(rows.dst, rows.part)
        if len(place) and np.bincount(place).max() > 1:
            again[np.setdiff1d(np.arange(len(place)), np.unique(place, return_index=True)[1])] = True
        if again.any():
            row = int(np.argmax(again))
            move = f"from rank {rows.src[row]} ({self.phase.name}, step {number})"
            message = f"rank {rows.dst[row]} gets part {rows.part[row]} again, {move}: it has it complete"
            return [self._at(int(rows.line[row]), "pulled-twice", message)]
        self.have[rows.dst, rows.part] = self.have[rows.src, rows.part]
        self.fingerprints[rows.dst, rows.part] = self.fingerprints[rows.src, rows.part]
        if self.losses is not None:
            self.losses.pull(rows.src, rows.dst, rows.part)
        everyone = np.full(len(place), self.contributors, dtype=np.int64)
        some = self.contributors < self.size
        members = self.have[rows.src, rows.part] if some else rows.members
        self.deliveries = replace(rows, contributors=everyone, members=members)
        return []

    def complete(self, *rows: Ints) -> npt.NDArray[np.bool_]:
        """Return the mask [size, parts], or [rows] of some ranks and parts, of complete parts."""
        return np.asarray(set_sizes(self.have[rows]) == self.contributors)

    def members(self, rank: int, part: int) -> list[int]:
        """Return the ranks whose contributions ``rank`` holds of ``part``."""
        return ranks_in(self.have[rank, part])

    def _twice(self, rows: Deliveries, group: Ints, number: int) -> Diagnostic:
        """Return the diagnostic of the first contribution that ``group``, rows of one receiver and part, repeats."""
        dst, part = int(rows.dst[group[0]]), int(rows.part[group[0]])
        source = {rank: dst for rank in self.members(dst, part)}
        for row in group:
            src, origin = int(rows.src[row]), int(rows.origin[row])
            for member in self._sent(src, part, origin):
                if member in source:
                    reason = f"{_both_sources(dst, source[member], src)} ({self.phase.name}, step {number})"
                    message = f"rank {dst} would count {self._contribution(member, part)} twice: {reason}"
                    return self._at(int(rows.line[row]), "counted-twice", message, (self._holds(dst, part),))
                source[member] = src
        raise AssertionError("a group that counts twice has a member that is seen twice")

    def _sent(self, src: int, part: int, origin: int) -> list[int]:
        if origin < 0:
            return self.members(src, part)
        return ranks_in(self.begun[origin, part]) if self.pushes_ended else [origin]

    def _unfinished(self, rows: Deliveries, row: int, number: int) -> Diagnostic:
        src, dst, part = int(rows.src[row]), int(rows.dst[row]), int(rows.part[row])
        lacking = sorted(set(range(self.size)) - set(self.members(src, part)))
        message = (
            f"rank {src} sends part {part} to rank {dst} before it is complete: "
            f"it lacks what {named(lacking)} contributed ({self.phase.name}, step {number})"
        )
        owners = np.flatnonzero(self.complete()[:, part]).tolist()
        note = f"part {part} is complete at {named(owners)}" if owners else f"no rank has part {part} complete"
        return self._at(int(rows.line[row]), "sent-incomplete", message, (note,))

    def _contribution(self, rank: int, part: int) -> str:
        return f"rank {rank}'s index set" if self._announcing else f"rank {rank}'s part {part}"

    def _holds(self, rank: int, part: int) -> str:
        if self._announcing:
            return f"rank {rank} has the index sets of {named(self.members(rank, part))}"
        return f"rank {rank} holds of part {part} what {named(self.members(rank, part))} contributed"

    @property
    def _announcing(self) -> bool:
        return self.phase.kind in SET_KINDS and self.parts == 1

    def _at(
        self, line: int, identifier: str, message: str, notes: tuple[str, ...] = (), help: str | None = None
    ) -> Diagnostic:
        notes = (*notes, format_ranks(self.size))
        return Diagnostic(identifier, message, self.rounds.sends[line].span, notes, help)


def _both_sources(dst: int, first: int, second: int) -> str:
    if first == dst:
        return f"it has it already, and rank {second} sends it"
    return f"rank {second} sends it twice" if first == second else f"ranks {first} and {second} send it"


def by_part(round_: Round) -> Deliveries:
    """Return one row [rows] for every part of every move."""
    src, dst, origin, line, part = round_.src, round_.dst, round_.origin, round_.line, round_.first
    lengths = round_.last - round_.first + 1
    if (lengths != 1).any():
        src, dst, origin, line, first = (np.repeat(column, lengths) for column in (src, dst, origin, line, part))
        ends = np.cumsum(lengths)
        part = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths) + first
    return Deliveries(src, dst, part, origin, line, np.zeros_like(part), np.ones_like(part), _NOBODY, _NOBODY, _NOBODY)


def _starts(keys: Ints) -> Ints:
    return np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])


def _in_order(fingerprints: Words, keys: Ints) -> Words:
    """Return the fingerprint of each run of equal ``keys``: of its ``fingerprints`` [rows] in this order."""
    starts = _starts(keys)
    position = np.arange(len(keys)) - np.repeat(starts, np.diff(np.r_[starts, len(keys)]))
    return mix(np.add.reduceat(mix(fingerprints ^ mix(position.astype(np.uint64))), starts))


def set_sizes(sets: Words) -> Ints:
    """Return the number of ranks in each of ``sets`` [..., words], as [...]."""
    return np.asarray(np.bitwise_count(sets).sum(axis=-1, dtype=np.int64))


def bit_of(ranks: Ints) -> Words:
    """Return the bits [n] of ``ranks`` [n] in their words of 64."""
    return np.asarray(np.uint64(1) << (ranks % 64).astype(np.uint64))


def own_contributions(size: int, parts: int) -> Words:
    """Return sets of ranks [size, parts, words]: every rank holds its own contribution to every part, and no other."""
    ranks = np.arange(size)
    words = (size + 63) // 64
    if _COPIES * 8 * size * parts * words > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise MemoryError  # the system would kill the process, which has no words for it
    sets: Words = np.zeros((size, parts, words), dtype=np.uint64)
    sets[ranks, :, ranks // 64] = bit_of(ranks)[:, None]
    return sets


def members_of(sets: Words) -> tuple[Ints, Ints]:
    """Return the members of ``sets`` [sets, words]: number of the set and rank, [members] each, both ascending."""
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for start in range(0, len(sets), MOST_MERGED):
        some = np.ascontiguousarray(sets[start : start + MOST_MERGED])
        bits = np.unpackbits(some.view(np.uint8), axis=1, bitorder="little")
        row, rank = np.divmod(np.flatnonzero(bits.view(np.bool_)), bits.shape[1])
        found.append((row + start, rank))
    rows, ranks = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(ranks)


def ranks_in(words: Words) -> list[int]:
    """Return the ranks whose bits are set in one set [words], ascending."""
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    ranks: list[int] = np.flatnonzero(bits).tolist()
    return ranks


def named(ranks: list[int]) -> str:
    """Return ranks in words, such as: rank 3; ranks 1 and 2; ranks 0, 1, 2, 3, 4, 5 and 7 others."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > MOST_NAMED:
        return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))} and {count(len(ranks) - MOST_NAMED, 'other')}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}" if ranks else "no rank"
