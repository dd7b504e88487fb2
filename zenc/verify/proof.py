"""The proof that a plan is right among a number of ranks, or a counterexample in words at the user's line.

Exactly once: play every move with sets of contributors (``zenc.verify.provenance``). No contribution may arrive twice,
the pull may carry complete parts only, and in the end every rank holds every part complete.

Under Holders the announce is played first, in the same way: no index set may arrive twice, and every rank must end
with those of all ranks. Then all choose the same owners, by themselves (docs/internals/plan.md). Where a directory
names the owners, each part of all index sets must come to some rank, and what that names to all: as values do.

The same sum: the order in which contributions are added is fingerprinted along the way; all ranks must end with the
same order of each part, so that they hold the same bits.

Known sizes: under Encoded every rank must end with the bytes of every part, by which all cut the next call.

Losses are kept: where a plan selects or encodes, fingerprints identify the piece, and its loss has a keeper
(``zenc.verify.losses``).

No deadlock: a rank enters a round, posts all its sends and receives of that round, and leaves when they are done. Each
receive has exactly one send in the same round, since a move is both. So every wait of round k is for ranks to enter
round k, which needs nothing but the end of their round k - 1: all edges of the wait-for graph lead from a round to an
earlier one, so it has no cycle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from zenc.errors import Diagnostic, Span, VerificationError
from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import SET_KINDS, Phase, PhaseKind, Plan
from zenc.plan.requirements import LARGEST_SOUGHT, allowed, format_ranks
from zenc.plan.tier_layout import TierLayout, first_part, levels_of
from zenc.plan.unroll import Round, Rounds, Unrolled, expand
from zenc.scheme.model import Encoded, Partition
from zenc.verify.losses import Keepers
from zenc.verify.provenance import Deliveries, Provenance, named
from zenc.verify.survey import survey
from zenc.wire.mix import Words

UNPINNED_SIZES = tuple(range(1, 17))
"""Numbers of ranks that an unpinned plan is proved for at once; the real number is proved when it is loaded."""
LARGEST_UNPINNED = 256
"""Greatest number of ranks in the proof of a plan with tiers for several groups of its inner tiers, which may be larger
than 16 ranks."""

Observer = Callable[[Phase, int, Deliveries], None]


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of ``verify``: ``owners[part]`` is the lowest rank that has the part complete when the pushes end.

    ``rounds`` are the numbers of rounds by kind of phase: announce, push or pull. ``hops`` says how often a value is
    encoded on the longest way of a phase, by its name, where it has a code; ``keepers`` are those of the losses.
    """

    size: int
    parts: int
    rounds: Mapping[str, int]
    moves: int
    owners: tuple[int, ...]
    hops: Mapping[str, int] = field(default_factory=dict)
    keepers: Keepers | None = field(default=None, compare=False, repr=False)


def verify(plan: Plan, size: int, observe: Observer | None = None) -> tuple[Rounds, Proof]:
    """Prove ``plan`` among ``size`` ranks; raises VerificationError with a counterexample.

    ``observe`` is called with phase, round number in it (from 1) and deliveries of every round played.
    """
    rounds = expand(plan, size)
    return rounds, prove(plan, rounds, observe)


def prove(plan: Plan, rounds: Rounds, observe: Observer | None = None) -> Proof:
    """Prove that ``rounds`` do what ``plan`` is for; raises VerificationError with a counterexample."""
    _ensure_whole_parts(plan, rounds)
    state = Provenance(rounds, plan)
    owners = tuple(int(owner) for owner in _prove_push(state, plan, rounds, observe).argmax(axis=0))
    _prove_pull(state, plan, rounds, observe)
    _ensure_known_sizes(state, plan)
    losses = state.losses
    moves = sum(len(round_) for _, _, round_ in rounds)
    counts = Counter({phase.kind.value: 0 for phase in plan.phases if plan.plays(phase, rounds.size)})
    counts.update(phase.kind.value for phase, _, _ in rounds)
    proof = Proof(rounds.size, rounds.parts, dict(counts), moves, owners)
    return proof if losses is None else replace(proof, hops=losses.hops, keepers=losses.keepers())


def prove_halves(plan: Plan, rounds: Rounds) -> Mask:
    """Prove each half of ``plan`` alone, and return the owners of each part, [size, parts]; as ``prove`` raises.

    From each rank's contribution the pushes bring every part, complete, to its owners. From the owners' parts, while no
    other rank has anything, the pulls bring every part to every rank.
    """
    pushed = Provenance(rounds, plan)
    owned = _prove_push(pushed, plan, rounds, None)
    pulled = Provenance(rounds, plan)
    pulled.hold(owned, pushed.fingerprints)
    _prove_pull(pulled, plan, rounds, None)
    return owned


def _prove_push(state: Provenance, plan: Plan, rounds: Rounds, observe: Observer | None) -> Mask:
    """Play the announce and the pushes; return the ranks that then have each part complete, [size, parts]."""
    owned = state.complete()
    for phase, played in rounds.phases:
        if phase.kind is PhaseKind.ANNOUNCE:
            _announce(plan, rounds, observe)
        elif phase.kind is PhaseKind.PUSH:
            _play(state, phase, played, observe)
            last = phase.tier.depth + 1 == len(plan.tiers)
            state.end_push(last)
            if last:
                owned = _owned(state, phase)
            else:
                _ensure_whole_groups(state, plan, phase)
    return owned


def _prove_pull(state: Provenance, plan: Plan, rounds: Rounds, observe: Observer | None) -> None:
    """Play the pulls, which begin where parts are complete: all ranks must end with all of them, and with one sum."""
    for phase, played in rounds.phases:
        if phase.kind is PhaseKind.PULL:
            _play(state, phase, played, observe)
    _ensure_everything(state, plan.phases[-1])
    _ensure_same_sum(state, plan, rounds)


def verify_all(plan: Plan, sizes: Iterable[int] | None = None) -> tuple[Proof, ...]:
    """Prove ``plan`` for its pinned size, or for those of 1 to 16 ranks that it allows; or for ``sizes``.

    A plan that allows none of 1 to 16 is proved for the least number of ranks that it does allow. If it is right for
    some of the numbers only, the error names them.
    """
    if sizes is None and plan.size is None:
        return survey(_unpinned(plan), lambda size: verify(plan, size)[1], require=len(plan.tiers) == 1)
    return tuple(verify(plan, size)[1] for size in (sizes or (plan.size,)) if size is not None)


def _unpinned(plan: Plan) -> Sequence[int]:
    """Return the sizes that an unpinned plan is proved for: with tiers, some with several of the outermost."""
    group = math.prod(tier.size or 1 for tier in plan.tiers[:-1])
    if 1 < group <= LARGEST_UNPINNED:
        most = max(UNPINNED_SIZES[-1], min(3 * group, LARGEST_UNPINNED))
        sizes = allowed(plan, range(group, most + 1, group))
        if sizes:
            return sizes
    beyond = range(UNPINNED_SIZES[-1] + 1, LARGEST_SOUGHT + 1)
    return allowed(plan, UNPINNED_SIZES) or allowed(plan, beyond, most=1) or UNPINNED_SIZES[-1:]


def _play(state: Provenance, phase: Phase, rounds: Iterable[Round], observe: Observer | None) -> None:
    rounds = tuple(rounds)
    state.begin(phase, rounds)
    for number, round_ in enumerate(rounds, start=1):
        found = state.pull(round_, number) if phase.completes else state.push(round_, number)
        if found:
            raise VerificationError(found)
        if observe and state.deliveries is not None:
            observe(phase, number, state.deliveries)


def _announce(plan: Plan, rounds: Rounds, observe: Observer | None) -> None:
    """Prove the announce: index sets are contributions to one part, or in a directory to a part for each rank.

    Moves stay in the groups of the tier, so a rank with as many sets as there are members has those of its group.
    """
    level = levels_of(plan, rounds.size)[-1]
    sets = [played for played in rounds.phases if played.phase.kind in SET_KINDS]
    state = Provenance(replace(rounds, parts=plan.parts_in(sets[0].phase, rounds.size)), members=level.members)
    _play(state, sets[0].phase, sets[0].rounds, observe)
    if len(sets) > 1:
        _announce_to_directory(state, sets[0], sets[1], level, observe)
        return
    phase = sets[0].phase
    ignorant = np.flatnonzero(~state.complete()[:, 0])
    if len(ignorant):
        rank = int(ignorant[0])
        lacking = sorted(set(level.peers(rank)) - set(state.members(rank, 0)))
        message = f"rank {rank} never learns which units {named(lacking)} {'has' if len(lacking) == 1 else 'have'}"
        help = "an announce is the push of a schedule that brings what every rank has to every other, once"
        raise VerificationError(Diagnostic("never-announced", message, phase.span, (format_ranks(state.size),), help))


def _announce_to_directory(
    state: Provenance, announce: Unrolled, directory: Unrolled, level: TierLayout, observe: Observer | None
) -> None:
    """Prove that a rank with a part of all its group's sets, after the announce, names the owners to that group."""
    state.end_push(last=True)
    groups = level.group(np.arange(state.size))
    for group in np.unique(groups).tolist():
        _owned(state, announce.phase, np.flatnonzero(groups == group))
    _play(state, directory.phase, directory.rounds, observe)
    _ensure_everything(state, directory.phase)


def _ensure_whole_parts(plan: Plan, rounds: Rounds) -> None:
    """Check that tiers inside of one with owners of its own move whole parts, as they don't know its cut."""
    if plan.across is None:
        return
    cut = plan.counts(rounds.size)[-1]
    for phase, number, round_ in rounds:
        halved = np.flatnonzero((round_.first % cut != 0) | (round_.last % cut != cut - 1))
        if phase.tier != plan.tiers[-1] and len(halved):
            at = int(halved[0])
            message = f"rank {round_.src[at]} sends some of what the outermost tier makes of a part, and can't tell it"
            notes = (f"in the {phase.name}, step {number}", format_ranks(rounds.size))
            raise VerificationError(Diagnostic("no-such-part", message, rounds.sends[int(round_.line[at])].span, notes))


def _ensure_whole_groups(state: Provenance, plan: Plan, phase: Phase) -> None:
    """Check that each rank has the parts that it owns in the tiers so far from all ranks of its group."""
    levels = levels_of(plan, state.size)
    level, inside = levels[phase.tier.depth], levels[: phase.tier.depth + 1]
    ranks = np.arange(state.size)
    group = ranks // (level.inner * level.members)
    members = _bits(group[:, None] == group[None, :])
    parts = first_part(inside, ranks)[:, None] + np.arange(level.width)
    lacking = np.argwhere((state.have[ranks[:, None], parts] != members[:, None]).any(axis=2))
    if len(lacking):
        rank, part = int(lacking[0][0]), int(parts[tuple(lacking[0])])
        raise VerificationError(_incomplete(state, phase, rank, part, np.flatnonzero(group == group[rank])))


def _bits(chosen: npt.NDArray[np.bool_]) -> Words:
    """Return the last axis of ``chosen`` as bits in words of 64, [..., words]."""
    packed = np.packbits(chosen, axis=-1, bitorder="little")
    padding = -packed.shape[-1] % 8
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, padding)))).view(np.uint64)


def _incomplete(state: Provenance, phase: Phase, rank: int, part: int, group: Ints) -> Diagnostic:
    lacking = sorted(set(group.tolist()) - set(state.members(rank, part)))
    message = (
        f"rank {rank} ends the {phase.name} without what {named(lacking)} contributed to part {part}, "
        "with which it goes on in the next tier"
    )
    wanted = "part r to its rank r" if phase.tier.partition is Partition.PARALLELISM else "the whole to every rank"
    help = f"the push of an inner tier must bring {wanted}"
    notes = (f"its push: {phase.span}", format_ranks(state.size)) if phase.span else (format_ranks(state.size),)
    return Diagnostic("tier-incomplete", message, phase.tier.span or phase.span, notes, help)


def _owned(state: Provenance, last: Phase, group: Ints | None = None) -> Mask:
    """Return the ranks that hold each part complete after ``last``, the last push, [size, parts].

    Raises VerificationError unless each part is at one of a ``group`` of ranks, or of all.
    """
    complete = state.complete()
    among = np.arange(state.size) if group is None else group
    orphaned = np.flatnonzero(~complete[among].any(axis=0))
    if len(orphaned):
        part = int(orphaned[0])
        best = int(among[np.bitwise_count(state.have[among, part]).sum(axis=1).argmax()])
        lacking = sorted(set(among.tolist()) - set(state.members(best, part)))
        phase = last.kind.value
        message = (
            f"rank {best} never gets part {part} from {named(lacking)}, "
            f"and no rank has more of it when the {phase} ends"
        )
        heard = [rank for rank in among.tolist() if lacking[0] in state.members(rank, part)]
        span, why = _nearest_send(state, last, heard, part)
        notes = (
            f"what {named(lacking[:1])} contributes to it is at {named(heard)}, and {why}",
            format_ranks(state.size),
        )
        help = f"a send is missing in the {phase}, or goes to another rank than it should"
        raise VerificationError(Diagnostic("never-complete", message, span, notes, help))
    return complete


def _ensure_everything(state: Provenance, last: Phase) -> None:
    """Check that every rank has every part complete when ``last`` ends, the last phase that brings them."""
    missing = np.argwhere(~state.complete())
    if len(missing):
        rank, part = (int(x) for x in missing[0])
        owners = np.flatnonzero(state.complete()[:, part]).tolist()
        message = f"rank {rank} never gets part {part}: the {last.kind.value} ends without it"
        span, why = _nearest_send(state, last, owners, part)
        notes = (f"part {part} is complete at {named(owners)}, and {why}", format_ranks(state.size))
        help = f"a send to rank {rank} is missing in the {last.kind.value}"
        raise VerificationError(Diagnostic("never-arrives", message, span, notes, help))


def _nearest_send(state: Provenance, phase: Phase, senders: Sequence[int], part: int) -> tuple[Span | None, str]:
    """Return the send of ``phase`` nearest to a missing one of ``part`` by ``senders``, and its receivers in words."""
    rounds = [round_ for of, played in state.rounds.phases if of == phase for round_ in played]
    by = [np.isin(round_.src, senders) for round_ in rounds]
    of_part = [(round_.first <= part) & (part <= round_.last) for round_ in rounds]
    takers = sorted({rank for r, b, p in zip(rounds, by, of_part, strict=True) for rank in r.dst[b & p].tolist()})
    ways = zip(by, of_part, strict=True), zip(by, by, strict=True), zip(of_part, of_part, strict=True)
    lines = (r.line[a & b] for way in ways for r, (a, b) in zip(rounds, way, strict=True))
    line = next((found[-1] for found in lines if len(found)), None)
    span = phase.span if line is None else state.rounds.sends[int(line)].span
    return span, f"sent from there to {named(takers)} in the {phase.kind.value}"


def _ensure_same_sum(state: Provenance, plan: Plan, rounds: Rounds) -> None:
    differs = np.argwhere(state.fingerprints != state.fingerprints[:1])
    if len(differs):
        rank, part = (int(x) for x in differs[0])
        _ensure_lossless_sum_is_right(plan, rounds, rank, part)
        message = (
            f"ranks 0 and {rank} add up part {part} in different orders, so their sums would differ in the last bits"
        )
        help = "let one rank finish the sum and send it in the pull, or exchange in pairs"
        last, notes = plan.of(PhaseKind.PUSH)[-1], (format_ranks(state.size),)
        raise VerificationError(Diagnostic("unequal-sums", message, last.span, notes, help))


def _ensure_known_sizes(state: Provenance, plan: Plan) -> None:
    """Check that each rank ends with the bytes of all parts, so that cuts by encoded sizes are equal on all ranks.

    Equal fingerprints of encoded pieces are equal bytes: the piece and its code are in them.
    """
    if not isinstance(plan.mapping, Encoded) or state.size == 1:
        return
    coded = state.losses.coded if state.losses is not None else np.zeros((state.size, state.parts), dtype=np.bool_)
    unknown = np.argwhere(~coded)
    if len(unknown):
        rank, part = (int(x) for x in unknown[0])
        message = f"rank {rank} ends with the sum of part {part} as values, so it can't know how long it is encoded"
        help = "'balanced by encoded' cuts by what travels last: give the last pull a code, such as pull: dense as int"
        last, notes = plan.phases[-1], (format_ranks(state.size),)
        raise VerificationError(Diagnostic("unknown-sizes", message, last.span, notes, help))


def _ensure_lossless_sum_is_right(plan: Plan, rounds: Rounds, rank: int, part: int) -> None:
    """Raise if all ranks would have the same sum without losses, as the losses then tell the ranks apart."""
    if not plan.is_lossy:
        return
    exact = {phase.name: replace(phase, code=None, select=(), merge=()) for phase in plan.phases}
    prove(
        replace(plan, phases=tuple(exact.values())),
        replace(rounds, phases=tuple(Unrolled(exact[phase.name], played) for phase, played in rounds.phases)),
    )
    message = (
        f"ranks 0 and {rank} add up part {part} of different values: what one adds encoded, the other has as it was"
    )
    help = "let one rank finish the sum and send it in the pull, or send each contribution before it is added anywhere"
    last, notes = plan.of(PhaseKind.PUSH)[-1], (format_ranks(rounds.size),)
    raise VerificationError(Diagnostic("unequal-sums", message, last.span, notes, help))
