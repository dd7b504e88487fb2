"""Provenance: the set of ranks whose contributions each rank holds of each part, while the moves are played.

    have[rank, part]  = the ranks whose contributions ``rank`` holds of ``part``, as bits
    tree[rank, part]  = a fingerprint of the order in which they were added
    apart[rank, part] = under one-shot aggregation, the ranks that held the pieces when the phase began, as bits

Playing a round gives its deliveries, one row for every part of every move, and whatever breaks the rule that each
contribution is counted exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zenc.errors import Diagnostic
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase, PhaseKind
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Round, Rounds
from zenc.plurals import count
from zenc.wire.mix import Words, mix

_NOBODY: Words = np.zeros((0, 1), dtype=np.uint64)
MOST_MERGED = 1 << 14
"""Places whose fingerprints are made at once."""


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The deliveries of one round: one entry for every part of every move, [rows] each.

    ``contributors`` counts the ranks whose contributions are delivered, ``pieces`` the pieces that are kept apart;
    ``members`` [rows, words] are those ranks, as bits, in a push. ``holders`` [rows, words] are, under one-shot
    aggregation, the ranks that held those pieces when the phase began, and ``begun`` [size, parts, words] whose
    contributions they then held, unless that was each its own.
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
    """The state of all ranks; ``push`` and ``pull`` play one round each and return what is wrong with it.

    ``begin`` opens a phase, and ``end_push`` merges what it collected.
    """

    def __init__(self, rounds: Rounds) -> None:
        size, parts = rounds.size, rounds.parts
        self.rounds, self.size, self.parts = rounds, size, parts
        self.have = each_its_own(self.size, self.parts)
        ranks = np.arange(size, dtype=np.uint64)
        self.tree: Words = np.repeat(mix(ranks + np.uint64(1))[:, None], parts, axis=1)
        self.phase, self.pushes = rounds.phases[0].phase, 0
        self.apart, self.before = self.have, self.have
        self.deliveries: Deliveries | None = None

    def _what(self, rank: int, part: int) -> str:
        """What ``rank`` contributed to ``part``, in words."""
        return f"rank {rank}'s index set" if self._announcing else f"rank {rank}'s part {part}"

    @property
    def _announcing(self) -> bool:
        return self.phase.kind is PhaseKind.ANNOUNCE

    def begin(self, phase: Phase) -> None:
        """Open a phase. In the first one ``apart`` is ``have``: every rank holds what it contributed."""
        self.phase = phase
        if phase.keeps_apart and self.pushes:
            self.apart, self.before = each_its_own(self.size, self.parts), self.have.copy()

    def end_push(self, last: bool) -> None:
        """What was collected is merged, in the order of the ranks that held the pieces when the phase began."""
        if self.phase.keeps_apart and last and not self.pushes:
            self.tree[self.complete()] = 0  # of all ranks, in rank order, wherever it is merged
        elif self.phase.keeps_apart:
            chosen = self.complete() if last else np.bitwise_count(self.apart).sum(axis=2) > 1
            self._merge_collected(np.argwhere(chosen))
        self.pushes += 1

    def _merge_collected(self, places: Ints) -> None:
        """Fingerprints of the merged pieces of ``places``, [rank, part]; some at a time, for memory."""
        before = self.tree.copy()
        for start in range(0, len(places), MOST_MERGED):
            rank, part = places[start : start + MOST_MERGED].T
            row, origin = members_of(self.apart[rank, part])
            first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
            position = np.arange(len(row)) - first[row]
            mixed = mix(before[origin, part[row]] ^ mix(position.astype(np.uint64)))
            self.tree[rank, part] = mix(np.add.reduceat(mixed, first))

    def complete(self) -> npt.NDArray[np.bool_]:
        """[size, parts]: where a rank holds a part with the contributions of all ranks."""
        return np.asarray(np.bitwise_count(self.have).sum(axis=2) == self.size)

    def members(self, rank: int, part: int) -> list[int]:
        """The ranks whose contributions ``rank`` holds of ``part``."""
        return ranks_in(self.have[rank, part])

    def push(self, round_: Round, number: int) -> list[Diagnostic]:
        """Play one round of the push: what arrives is joined to what is held."""
        rows = by_part(round_)
        payload = self.have[rows.src, rows.part]
        one = np.ones((len(payload), 1), dtype=np.uint64)
        pieces = self.apart[rows.src, rows.part] if self.phase.keeps_apart else one
        found = self._restrict(rows, payload, pieces, number)
        if found:
            return found
        return self._join(rows, payload, pieces, number)

    def _restrict(self, rows: Deliveries, payload: Words, pieces: Words, number: int) -> list[Diagnostic]:
        """Cut the rows that forward one rank's piece down to it (in place)."""
        limited = rows.origin >= 0
        if not limited.any():
            return []
        if not self.phase.keeps_apart:
            line = int(rows.line[int(np.argmax(limited))])
            message = "'of' forwards what one rank contributed, but incremental aggregation has merged it with the rest"
            return [self._at(line, "origin-merged", message, help="use aggregation: one_shot, or leave out 'of'")]
        only = np.zeros_like(pieces)
        origin = np.where(limited, rows.origin, 0)
        only[np.arange(len(origin)), origin // 64] = bit_of(origin)
        lacking = limited & ((pieces & only).any(axis=1) == 0)
        if lacking.any():
            at = int(np.argmax(lacking))
            src, part, of = int(rows.src[at]), int(rows.part[at]), int(rows.origin[at])
            message = f"rank {src} has nothing of {self._what(of, part)} to send ({self.phase.name}, step {number})"
            return [self._at(int(rows.line[at]), "nothing-to-send", message, (self._holds(src, part),))]
        pieces[limited] = only[limited]
        payload[limited] = self.before[origin, rows.part][limited] if self.pushes else only[limited]
        return []

    def _join(self, rows: Deliveries, payload: Words, pieces: Words, number: int) -> list[Diagnostic]:
        key = rows.dst * self.parts + rows.part
        order = np.lexsort((rows.src, key))
        members, key, payload = payload, key[order], payload[order]
        starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        dst, part = rows.dst[order][starts], rows.part[order][starts]
        counts = np.bitwise_count(payload).sum(axis=1).astype(np.int64)
        joined = np.bitwise_or.reduceat(payload, starts, axis=0) | self.have[dst, part]
        before = np.bitwise_count(self.have[dst, part]).sum(axis=1)
        twice = np.bitwise_count(joined).sum(axis=1) != before + np.add.reduceat(counts, starts)
        if twice.any():
            group = int(np.argmax(twice))
            end = starts[group + 1] if group + 1 < len(starts) else len(key)
            return [self._twice(rows, order[starts[group] : end], number)]
        if not self.phase.keeps_apart:
            self._grow(rows, order, starts)
        elif self.apart is not self.have:
            self.apart[dst, part] |= np.bitwise_or.reduceat(pieces[order], starts, axis=0)
        self.have[dst, part] = joined
        original = np.empty_like(counts)
        original[order] = counts
        apart = np.bitwise_count(pieces).sum(axis=1).astype(np.int64)
        holders = pieces if self.phase.keeps_apart else _NOBODY
        begun = self.before if self.phase.keeps_apart and self.pushes else _NOBODY
        self.deliveries = replace(
            rows, contributors=original, pieces=apart, members=members, holders=holders, begun=begun
        )
        return []

    def _grow(self, rows: Deliveries, order: Ints, starts: Ints) -> None:
        """Fingerprints of the merged pieces: of theirs and the receiver's own, in the order of the holders."""
        src, dst, part = rows.src[order], rows.dst[order], rows.part[order]
        own = np.zeros(len(src) + len(starts), dtype=bool)
        holder = np.r_[src, dst[starts]]
        own[len(src) :] = True
        key = np.r_[dst, dst[starts]] * self.parts + np.r_[part, part[starts]]
        prints = self.tree[holder, np.r_[part, part[starts]]]
        ordered = np.lexsort((holder, key))
        key, prints = key[ordered], prints[ordered]
        first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        position = np.arange(len(key)) - np.repeat(first, np.diff(np.r_[first, len(key)]))
        mixed = mix(prints ^ mix(position.astype(np.uint64)))
        self.tree[dst[starts], part[starts]] = mix(np.add.reduceat(mixed, first))

    def pull(self, round_: Round, number: int) -> list[Diagnostic]:
        """Play one round of the pull: what arrives is complete and takes the place of what was held."""
        rows = by_part(round_)
        done = self.complete_rows(rows.src, rows.part)
        if not done.all():
            return [self._unfinished(rows, int(np.argmin(done)), number)]
        key = rows.dst * self.parts + rows.part
        again = self.complete_rows(rows.dst, rows.part)
        if len(key) and np.bincount(key).max() > 1:
            again[np.setdiff1d(np.arange(len(key)), np.unique(key, return_index=True)[1])] = True
        if again.any():
            return [self._again(rows, int(np.argmax(again)), number)]
        self.have[rows.dst, rows.part] = self.have[rows.src, rows.part]
        self.tree[rows.dst, rows.part] = self.tree[rows.src, rows.part]
        everyone = np.full(len(key), self.size, dtype=np.int64)
        self.deliveries = replace(rows, contributors=everyone)
        return []

    def complete_rows(self, rank: Ints, part: Ints) -> npt.NDArray[np.bool_]:
        """The mask [k]: whether ``rank[i]`` holds ``part[i]`` complete."""
        return np.asarray(np.bitwise_count(self.have[rank, part]).sum(axis=1) == self.size)

    def _at(
        self, line: int, identifier: str, message: str, notes: tuple[str, ...] = (), help: str | None = None
    ) -> Diagnostic:
        notes = (*notes, format_ranks(self.size))
        return Diagnostic(identifier, message, self.rounds.sends[line].span, notes, help)

    def _holds(self, rank: int, part: int) -> str:
        if self._announcing:
            return f"rank {rank} has the index sets of {named(self.members(rank, part))}"
        return f"rank {rank} holds of part {part} what {named(self.members(rank, part))} contributed"

    def _twice(self, rows: Deliveries, group: Ints, number: int) -> Diagnostic:
        """The counterexample of a contribution that arrives where it is already."""
        dst, part = int(rows.dst[group[0]]), int(rows.part[group[0]])
        seen = {rank: dst for rank in self.members(dst, part)}
        for row in group:
            src, origin = int(rows.src[row]), int(rows.origin[row])
            for member in self._sent(src, part, origin):
                if member in seen:
                    given = f"{_given(dst, seen[member], src)} ({self.phase.name}, step {number})"
                    message = f"rank {dst} would count {self._what(member, part)} twice: {given}"
                    return self._at(int(rows.line[row]), "counted-twice", message, (self._holds(dst, part),))
                seen[member] = src
        raise AssertionError("a group that counts twice has a member that is seen twice")

    def _sent(self, src: int, part: int, origin: int) -> list[int]:
        """The ranks whose contributions ``src`` sends: all that it holds, or those in the piece of ``origin``."""
        if origin < 0:
            return self.members(src, part)
        return ranks_in(self.before[origin, part]) if self.pushes else [origin]

    def _unfinished(self, rows: Deliveries, at: int, number: int) -> Diagnostic:
        src, dst, part = int(rows.src[at]), int(rows.dst[at]), int(rows.part[at])
        lacking = sorted(set(range(self.size)) - set(self.members(src, part)))
        message = (
            f"rank {src} sends part {part} to rank {dst} before it is complete: "
            f"it lacks what {named(lacking)} contributed ({self.phase.name}, step {number})"
        )
        owners = np.flatnonzero(self.complete()[:, part])
        note = (
            f"part {part} is complete at {named(owners.tolist())}"
            if len(owners)
            else f"no rank has part {part} complete"
        )
        return self._at(int(rows.line[at]), "sent-incomplete", message, (note,))

    def _again(self, rows: Deliveries, at: int, number: int) -> Diagnostic:
        src, dst, part = int(rows.src[at]), int(rows.dst[at]), int(rows.part[at])
        given = f"from rank {src} ({self.phase.name}, step {number})"
        message = f"rank {dst} gets part {part} again, {given}: it has it complete"
        return self._at(int(rows.line[at]), "pulled-twice", message)


def _given(dst: int, first: int, second: int) -> str:
    if first == dst:
        return f"it has it already, and rank {second} sends it"
    return f"rank {second} sends it twice" if first == second else f"ranks {first} and {second} send it"


def bit_of(ranks: Ints) -> Words:
    """The bits [n] of ``ranks`` [n] in their words of 64."""
    return np.asarray(np.uint64(1) << (ranks % 64).astype(np.uint64))


def each_its_own(size: int, parts: int) -> Words:
    """Sets of ranks [size, parts, words]: of every part every rank has its own piece alone."""
    ranks = np.arange(size)
    words: Words = np.zeros((size, parts, (size + 63) // 64), dtype=np.uint64)
    words[ranks, :, ranks // 64] = bit_of(ranks)[:, None]
    return words


def by_part(round_: Round) -> Deliveries:
    """One row for every part of every move."""
    src, dst, origin, line, part = round_.src, round_.dst, round_.origin, round_.line, round_.first
    lengths = round_.last - round_.first + 1
    if (lengths != 1).any():
        src, dst, origin, line, first = (np.repeat(column, lengths) for column in (src, dst, origin, line, part))
        ends = np.cumsum(lengths)
        part = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths) + first
    return Deliveries(src, dst, part, origin, line, np.zeros_like(part), np.ones_like(part), _NOBODY, _NOBODY, _NOBODY)


def members_of(sets: Words) -> tuple[Ints, Ints]:
    """Set and rank of every rank in ``sets``, bits [sets, words], ascending."""
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for start in range(0, len(sets), MOST_MERGED):
        some = np.ascontiguousarray(sets[start : start + MOST_MERGED])
        bits = np.unpackbits(some.view(np.uint8), axis=1, bitorder="little")
        row, rank = np.divmod(np.flatnonzero(bits.view(np.bool_)), bits.shape[1])
        found.append((row + start, rank))
    rows, ranks = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(ranks)


def ranks_in(words: Words) -> list[int]:
    """The ranks whose bits are set, ascending."""
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    found: list[int] = np.flatnonzero(bits).tolist()
    return found


MOST_NAMED = 6


def named(ranks: list[int]) -> str:
    """Ranks in words, such as: rank 3; ranks 1 and 2; ranks 0, 1, 2, 3, 4, 5 and 7 others."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > MOST_NAMED:
        return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))} and {count(len(ranks) - MOST_NAMED, 'other')}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}" if ranks else "no rank"
