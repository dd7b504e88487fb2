"""Losses: the selections and codes of a plan, their losses in the result, and the rank that keeps each.

    piece   = contribution | sum of piece+ | select of piece | code of piece           # told apart by fingerprints
    result  = the piece that all ranks end with
    kept    = one of the ranks that make it, for every select and code in the result

A select or a code makes of a value another, and its loss is the difference. So the value of a piece and the losses in
it are together the sum of its contributions, by induction over the grammar; each contribution is in the result exactly
once, and so is each loss. Ranks that encode equal pieces lose the same, and the lowest of them keeps it; the loss of a
piece encoded in vain is not in the result, and kept by nobody. That is conservation: gradients = result + kept losses.
Under ``decay`` kept losses are multiplied after that; beside votes it keeps no losses, and this does not hold. Under
``shifted`` both sides are less the sum of what was sent before: all that was sent = gradients - kept losses.

Fixed integers lose nothing here: their gradient is rounded once, before the first phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from zenc.errors import Diagnostic, VerificationError
from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.plan.requirements import format_ranks
from zenc.scheme.compression import Summability
from zenc.scheme.compression_words import words_of
from zenc.scheme.model import Format
from zenc.wire.formats import FILLING
from zenc.wire.mix import Words, mix

BEGIN = 0
"""The step of encodings when a phase begins; steps with moves are counted from 1, through all phases."""
SELECTED = -1
"""The step of selections when a phase begins; those of the sums of step k have SELECTED - k."""


def forwards_sealed(before: Phase, following: Phase) -> bool:
    """Return whether pieces received encoded in a phase are sent on unchanged: the same values in one code."""
    unfilled = following.format is before.format or following.format not in FILLING
    unspread = before.format is not Format.DENSE or following.format is Format.DENSE
    return before.code == following.code and unfilled and unspread and not following.select


def votes(phase: Phase) -> bool:
    """Return whether ``phase`` begins by encoding all contributions, those that their own rank sums among them."""
    code = phase.code if phase.kind is PhaseKind.PUSH else None
    return code is not None and code.summability is Summability.VOTED


@dataclass(frozen=True, slots=True, eq=False)
class Keepers:
    """The losses in the result, each with the rank that keeps it: arrays [losses].

    ``phase`` is the place among the plan's phases; ``step`` that of the move which sends it first, or BEGIN, or
    SELECTED and below.
    """

    phase: Ints
    step: Ints
    rank: Ints
    part: Ints

    def of(self, rank: int) -> frozenset[tuple[int, int, int]]:
        """Return the losses that ``rank`` keeps: phase, step and part of each."""
        mine = self.rank == rank
        return frozenset(zip(*(each[mine].tolist() for each in (self.phase, self.step, self.part)), strict=True))


class Losses:
    """The losses of all ranks while a plan is played, beside ``fingerprints`` [size, parts], which it marks.

    coded[rank, part]   = whether the piece of ``rank`` is encoded, in the code of the phase
    depth[rank, part]   = how often a contribution in it was encoded in this phase, at most
    encoder[rank, part] = a rank that encoded one of them, or -1
    inexact[rank, part] = whether it is no longer a sum of integers of one scale
    sent_in[rank, part] = the last step of a push in which ``rank`` sent it
    hops[phase]         = the greatest depth, by the name of a phase with a code
    """

    def __init__(self, plan: Plan, fingerprints: Words) -> None:
        self.fingerprints, shape = fingerprints, fingerprints.shape
        self.places = {phase.name: place for place, phase in enumerate(plan.phases)}
        self.size, self.parts = shape
        self.coded: Mask = np.zeros(shape, dtype=np.bool_)
        self.inexact, self.pulled = self.coded.copy(), self.coded.copy()
        self.depth, self.sent_in = np.zeros(shape, dtype=np.int16), np.full(shape, -1, dtype=np.int32)
        self.encoder = np.full(shape, -1, dtype=np.int32)
        self.hops: dict[str, int] = {phase.name: 0 for phase in plan.phases if phase.code is not None}
        self.phase = plan.phases[0]
        self.edges: list[tuple[Words, Words]] = []
        self.made: list[tuple[int, int, int, Ints, Ints, Words]] = []
        self.played = 0
        """The number of steps with moves so far."""

    def begin(self, phase: Phase, complete: Mask, moved: Iterable[int]) -> None:
        """Open ``phase``, which moves the parts ``moved``; ``complete`` [size, parts] are places of whole sums."""
        before, self.phase = self.phase, phase
        if not forwards_sealed(before, phase):
            self.coded[:] = False
        self.depth[:], self.encoder[:] = 0, -1
        pull = phase.kind is PhaseKind.PULL
        if phase.select:
            rank, part = np.nonzero(complete if pull else np.ones_like(complete))
            self._lose(SELECTED, rank, part)
        if votes(phase):
            self._encode(BEGIN, *np.nonzero(~self.coded))
        if pull and phase.code is not None:
            chosen = np.zeros_like(complete)
            chosen[:, list(moved)] = True
            self._encode(BEGIN, *np.nonzero(complete & chosen & ~self.coded))

    def push(self, src: Ints, part: Ints, step: int) -> tuple[int, Diagnostic] | None:
        """Encode the own pieces of ``part`` that ``src`` send, [rows] each; return a row that may not be, and why."""
        self.sent_in[src, part] = self.played = step
        if self.phase.code is None:
            return None
        first = np.unique(src * self.parts + part, return_index=True)[1]
        first = np.sort(first[~self.coded[src[first], part[first]]])
        wrong = self._wrong(src[first], part[first])
        if wrong is not None:
            return int(first[wrong[0]]), wrong[1]
        self._encode(step, src[first], part[first])
        return None

    def merge(self, places: tuple[Ints, Ints], pieces: tuple[Ints, Ints, Words], starts: Ints, result: Words) -> None:
        """Record ``result`` [n] of ``places``, rank and part: sums of pieces, (rank, part, fingerprint), a run each."""
        rank, part, fingerprints = pieces
        lengths = np.diff(np.r_[starts, len(rank)])
        self.edges.append((np.repeat(_keys(result, places[1]), lengths), _keys(fingerprints, part)))
        for state in (self.depth, self.encoder, self.inexact):
            state[places] = np.maximum.reduceat(state[rank, part], starts)
        self.coded[places] = False

    def select_merged(self, rank: Ints, part: Ints) -> None:
        """Select from the sums that ``rank`` have just made of ``part``, [n] each, where the phase asks for it."""
        if self.phase.merge:
            self._lose(SELECTED - self.played, rank, part)

    def merge_all(self, places: tuple[Ints, Ints], result: Words) -> None:
        """Record ``result`` [n] of ``places``: the sum of all ranks' own contributions, in their order."""
        parts = np.unique(places[1])
        origin, part = np.repeat(np.arange(self.size), len(parts)), np.tile(parts, self.size)
        of_part = dict(zip(places[1].tolist(), result, strict=True))
        whole = np.array([of_part[each] for each in parts.tolist()], dtype=np.uint64)
        self.edges.append((np.tile(_keys(whole, parts), self.size), _keys(self.fingerprints[origin, part], part)))
        self.inexact[places] = self.inexact.any(axis=0)[places[1]]
        self.coded[places] = False

    def pull(self, src: Ints, dst: Ints, part: Ints) -> None:
        """Record that ``dst`` now have the pieces of ``part`` that ``src`` have, [rows] each."""
        for state in (self.coded, self.inexact):
            state[dst, part] = state[src, part]
        self.pulled[dst, part] = True

    def keepers(self) -> Keepers:
        """Return the keeper of each loss, once the plan is played and all ranks hold the same."""
        reached = _reached(_keys(self.fingerprints[0], np.arange(self.parts)), self.edges)
        found = [self._kept(*made, reached) for made in self.made]
        columns = [np.concatenate(column) for column in zip(*found, strict=True)] if found else [_NONE] * 5
        phase, step, rank, part = (each.astype(np.int64) for each in columns[:4])
        order = np.lexsort((rank, columns[4]))
        chosen = order[np.unique(columns[4][order], return_index=True)[1]]
        return Keepers(phase[chosen], step[chosen], rank[chosen], part[chosen])

    @property
    def _place(self) -> int:
        return self.places[self.phase.name]

    def _kept(
        self, place: int, step: int, played: int, rank: Ints, part: Ints, keys: Words, reached: Words
    ) -> tuple[Ints, Ints, Ints, Ints, Words]:
        """Return the losses of one step that are in the result, and that their rank did not make in vain."""
        at = np.minimum(np.searchsorted(reached, keys), len(reached) - 1)
        chosen = reached[at] == keys
        if step <= SELECTED:
            chosen &= (self.sent_in[rank, part] > played) | ~self.pulled[rank, part]
        rank, part = rank[chosen], part[chosen]
        return np.full_like(rank, place), np.full_like(rank, step), rank, part, keys[chosen]

    def _wrong(self, rank: Ints, part: Ints) -> tuple[int, Diagnostic] | None:
        """Return the first of the places that may not be encoded again, and why; None where all may."""
        code = self.phase.code
        assert code is not None
        if code.summability is Summability.ROUNDED:
            return None
        exact = code.summability is Summability.EXACT
        again = self.inexact[rank, part] if exact else self.depth[rank, part] > 0
        if not again.any():
            return None
        at = int(np.argmax(again))
        src, word = int(rank[at]), words_of(code)
        if exact:
            message = f"rank {src} would send as {word} what has been encoded in another way since"
            return at, Diagnostic("lossy-hop", message, help="use one code of exact integers in all phases before")
        other = int(self.encoder[rank[at], part[at]])
        whose = "it" if other == src else f"rank {other}"
        message = f"rank {src} would encode again what {whose} had encoded, and lose as {word} a second time"
        help = "write point_to_point, so that all is sent straight to the rank that sums it; or aggregation: one_shot"
        return at, Diagnostic("lossy-hop", message, help=help)

    def _encode(self, step: int, rank: Ints, part: Ints) -> None:
        code = self.phase.code
        assert code is not None
        if code.summability is not Summability.EXACT:
            self._lose(step, rank, part)
            self.depth[rank, part] += 1
            self.encoder[rank, part], self.inexact[rank, part] = rank, True
            deepest = int(self.depth[rank, part].max(initial=0))
            self.hops[self.phase.name] = max(self.hops[self.phase.name], deepest)
        elif step == BEGIN:
            wrong = self._wrong(rank, part)
            if wrong is not None:
                raise VerificationError(_at_phase(wrong[1], self.phase, self.size))
        self.coded[rank, part] = True

    def _lose(self, step: int, rank: Ints, part: Ints) -> None:
        """Give the pieces at these places new fingerprints, and record the losses."""
        before = self.fingerprints[rank, part]
        mark = _MARKS + 3 * self._place + min(2, max(0, -step))
        after = mix(before ^ mix(np.array([mark], dtype=np.uint64)))
        self.fingerprints[rank, part] = after
        keys = _keys(after, part)
        self.edges.append((keys, _keys(before, part)))
        self.made.append((self._place, step, self.played, rank, part, keys))


_MARKS = 1 << 32
"""The first mark of a loss, beyond the numbers that ranks and places begin with."""
_NONE: Words = np.zeros(0, dtype=np.uint64)


def _at_phase(found: Diagnostic, phase: Phase, size: int) -> Diagnostic:
    return Diagnostic(
        found.id, found.message, phase.code_span or phase.span, (f"in the {phase.name}", format_ranks(size)), found.help
    )


def _keys(fingerprints: Words, part: Ints) -> Words:
    """Return fingerprints of pieces of ``part`` that differ where parts do."""
    return mix(fingerprints ^ mix(part.astype(np.uint64) + np.uint64(1)))


def _reached(roots: Words, edges: Sequence[tuple[Words, Words]]) -> Words:
    """Return ``roots`` and the pieces that make them up, sorted; an edge leads from a piece to one of its own."""
    if not edges:
        return np.unique(roots)
    whole, piece = (np.concatenate(side) for side in zip(*edges, strict=True))
    order = np.argsort(whole, kind="stable")
    whole, piece = whole[order], piece[order]
    found, frontier = [np.unique(roots)], np.unique(roots)
    while len(frontier):
        start, end = np.searchsorted(whole, frontier, "left"), np.searchsorted(whole, frontier, "right")
        lengths = end - start
        at = np.repeat(start - np.r_[0, np.cumsum(lengths)[:-1]], lengths) + np.arange(int(lengths.sum()))
        frontier = np.unique(piece[at])
        found.append(frontier)
    return np.unique(np.concatenate(found))
