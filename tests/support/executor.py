"""An executor of moves that shares nothing with the verifier: lists of Python objects instead of sets in arrays.

It follows the words of ``zenc.plan.ir``. A contribution is its rank's number; a sum is a tree, the nested tuple of
what was added, in order. Values are played as exact fractions too, so that the final numbers can be looked at.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from zenc.plan.ir import VALUE_KINDS, Plan
from zenc.plan.unroll import Round, Rounds
from zenc.scheme.model import Partition
from zenc.verify.losses import forwards_sealed


@dataclass(frozen=True)
class Move:
    """A move. ``origin`` is below 0, or the rank whose contribution alone is sent."""

    src: int
    dst: int
    part: int
    origin: int = -1


class Wrong(Exception):
    """The moves are wrong."""


Steps = list[list[Move]]


def leaves(tree: Any) -> list[int]:
    """Return the ranks whose contributions are in ``tree``, as often as they are."""
    if isinstance(tree, int):
        return [tree]
    return [leaf for branch in tree if not isinstance(branch, str) for leaf in leaves(branch)]


def losses_in(tree: Any) -> list[Any]:
    """Return the lossy branches of ``tree``: an operation, the name of its phase, and its operand."""
    if isinstance(tree, int):
        return []
    inner = [loss for branch in tree if not isinstance(branch, str) for loss in losses_in(branch)]
    return [tree, *inner] if isinstance(tree[0], str) else inner


@dataclass(frozen=True)
class Loss:
    """The losses of phase ``name``: whether it selects, and its ``code``: "", "exact", "rounded", "coded" or "voted".

    ``sealed``: what came encoded in the phase before is sent as it is. ``merges``: it selects from sums on their way.
    """

    name: str
    code: str = ""
    selects: bool = False
    sealed: bool = False
    merges: bool = False

    def encoded(self, tree: Any) -> Any:
        """Return ``tree`` as it is first sent; raise Wrong where that loses too much."""
        encodes = [phase for operation, phase, _ in losses_in(tree) if operation == "encoded"]
        if self.code in ("", "exact"):
            if self.code and encodes:
                raise Wrong("what is encoded otherwise is no integer")
            return tree
        if tree.__class__ is tuple and tree[:2] == ("encoded", self.name):
            return tree
        if self.code in ("coded", "voted") and self.name in encodes:
            raise Wrong("it would be encoded twice in a phase")
        return "encoded", self.name, tree

    def selected(self, tree: Any) -> Any:
        """Return ``tree`` at the beginning of the phase."""
        return ("selected", self.name, tree) if self.selects else tree

    def begun(self, tree: Any) -> Any:
        """Return ``tree`` at the beginning of a push."""
        return self.encoded(self.selected(tree)) if self.code == "voted" else self.selected(tree)


Held = list[list[list[tuple[int, Any]]]]
"""Pieces by [rank][part], each with the rank that held it when the phase began, and its tree."""


@dataclass(frozen=True)
class Shape:
    """A tier: the members of a group, the parts that it cuts, and whether it keeps pieces apart."""

    members: int
    parts: int
    one_shot: bool


def execute(pushes: list[Steps], pulls: list[Steps], shapes: list[Shape], losses: list[Loss] | None = None) -> Held:
    """Play the moves, and return the final pieces; raise Wrong unless every rank ends with every part, summed once in
    one order.

    One push and one shape a tier, inner first; one pull a tier, outer first. ``losses`` are of all of these, in turn.
    """
    losses = losses or [Loss("")] * (len(pushes) + len(pulls))
    size, parts = prod(shape.members for shape in shapes), prod(shape.parts for shape in shapes)
    held: Held = [[[(rank, rank)] for _ in range(parts)] for rank in range(size)]
    for number, steps in enumerate(pushes):
        held = [[[(r, losses[number].begun(tree)) for r, tree in pieces] for pieces in parts_] for parts_ in held]
        for step in steps:
            play_push(step, held, shapes[number].one_shot, losses[number])
        held = [[[(rank, merged(pieces))] for pieces in of_rank] for rank, of_rank in enumerate(held)]
        if number + 1 < len(pushes):
            ensure_whole_groups(held, shapes, number)
    encoded: set[tuple[int, int]] = set()
    for steps, loss in zip(pulls, losses[len(pushes) :], strict=True):
        begin_pull(loss, {move.part for step in steps for move in step}, held, encoded)
        for step in steps:
            play_pull(step, held, size, encoded)
    everyone = list(range(size))
    for part in range(parts):
        for rank in range(size):
            if sorted(contributions(held[rank][part])) != everyone:
                raise Wrong(f"rank {rank} ends without part {part}")
            if held[rank][part][0][1] != held[0][part][0][1]:
                raise Wrong(f"rank {rank} adds part {part} in another order than rank 0")
    check_numbers(held, size, parts)
    return held


def merged(pieces: list[tuple[int, Any]]) -> Any:
    """Return the pieces added in the order of the ranks that held them."""
    ordered = sorted(pieces, key=lambda piece: piece[0])
    return tuple(tree for _, tree in ordered) if len(ordered) > 1 else ordered[0][1]


def ensure_whole_groups(held: Held, shapes: list[Shape], number: int) -> None:
    """Check that after push ``number`` a rank has its own parts of the tiers so far, from all ranks of its group."""
    for rank, of_rank in enumerate(held):
        place, group = rank, 1
        owner = []
        for shape in shapes[: number + 1]:
            place, at = divmod(place, shape.members)
            group *= shape.members
            owner.append(at if shape.parts > 1 else 0)
        for part, pieces in enumerate(of_rank):
            digits, rest = [], part
            for shape in reversed(shapes):
                rest, digit = divmod(rest, shape.parts)
                digits.insert(0, digit)
            if digits[: number + 1] == owner:
                wanted = [other for other in range(len(held)) if other // group == place]
                if sorted(contributions(pieces)) != wanted:
                    raise Wrong(f"rank {rank} goes on without its group's part {part}")


def contributions(pieces: list[tuple[int, Any]]) -> list[int]:
    return [leaf for _, tree in pieces for leaf in leaves(tree)]


def begin_pull(loss: Loss, moved: set[int], held: Held, encoded: set[tuple[int, int]]) -> None:
    """Select and encode a part, where it is moved, at all ranks that hold it complete; ``encoded`` are in this code."""
    if not loss.sealed:
        encoded.clear()
    for number, of_rank in enumerate(held):
        for part, pieces in enumerate(of_rank):
            if len(contributions(pieces)) == len(held):
                ((rank, tree),) = pieces
                tree = loss.selected(tree)
                if part in moved and loss.code and (number, part) not in encoded:
                    encoded.add((number, part))
                    tree = loss.encoded(tree)
                of_rank[part] = [(rank, tree)]


def play_push(step: list[Move], held: Held, one_shot: bool, loss: Loss) -> None:
    for move in step:
        if not one_shot or move.origin < 0 or move.origin == move.src:
            pieces = held[move.src][move.part]
            held[move.src][move.part] = [(r, loss.encoded(tree) if r == move.src else tree) for r, tree in pieces]
    arriving: dict[tuple[int, int], list[tuple[int, list[tuple[int, Any]]]]] = {}
    for move in step:
        pieces = held[move.src][move.part]
        if move.origin >= 0:
            if not one_shot:
                raise Wrong("merged pieces have no single origin")
            pieces = [piece for piece in pieces if piece[0] == move.origin]
            if not pieces:
                raise Wrong("nothing to send")
        arriving.setdefault((move.dst, move.part), []).append((move.src, list(pieces)))
    joined = {}
    for (dst, part), came in arriving.items():
        groups = sorted([(dst, held[dst][part]), *came], key=lambda group: group[0])
        together = [piece for _, pieces in groups for piece in pieces]
        if max(Counter(contributions(together)).values()) > 1:
            raise Wrong(f"rank {dst} counts part {part} twice")
        total = tuple(tree for _, tree in together)
        kept = ("selected", f"merges of {loss.name}", total) if loss.merges else total
        joined[dst, part] = together if one_shot else [(dst, kept)]
    for (dst, part), pieces in joined.items():
        held[dst][part] = pieces


def play_pull(step: list[Move], held: Held, size: int, encoded: set[tuple[int, int]]) -> None:
    before = [[list(pieces) for pieces in parts] for parts in held]
    taken = set()
    for move in step:
        if len(contributions(before[move.src][move.part])) != size:
            raise Wrong("an incomplete part is sent in the pull")
        if len(contributions(before[move.dst][move.part])) == size or (move.dst, move.part) in taken:
            raise Wrong("a part comes twice in the pull")
        taken.add((move.dst, move.part))
        held[move.dst][move.part] = before[move.src][move.part]
        if (move.src, move.part) in encoded:
            encoded.add((move.dst, move.part))


def check_numbers(held: Held, size: int, parts: int) -> None:
    """Play the moves with numbers: rank r gives 1 / (r + 2) of part p, and p; every sum is the expected one."""
    for part in range(parts):
        expected = sum((Fraction(1, rank + 2) + part for rank in range(size)), Fraction(0))
        for rank in range(size):
            total = sum((Fraction(1, leaf + 2) + part for leaf in contributions(held[rank][part])), Fraction(0))
            if total != expected:
                raise Wrong(f"rank {rank} ends with {total} in part {part}, not {expected}")


def steps_of(rounds: tuple[Round, ...]) -> Steps:
    """Return one move a part."""
    return [
        [
            Move(int(src), int(dst), part, int(origin))
            for src, dst, first, last, origin in zip(r.src, r.dst, r.first, r.last, r.origin, strict=True)
            for part in range(int(first), int(last) + 1)
        ]
        for r in rounds
    ]


def shapes_of(plan: Plan, size: int) -> list[Shape]:
    """Return the tiers of ``plan`` among ``size`` ranks."""
    counts = zip(plan.tiers, plan.counts(size), strict=True)
    return [Shape(n, n if tier.partition is Partition.PARALLELISM else 1, tier.one_shot) for tier, n in counts]


def assert_plays(plan: Plan, rounds: Rounds) -> Held:
    """Play ``rounds``, and return the final pieces; raise Wrong unless they do what ``plan`` is for."""
    return execute(*phases_of(rounds), shapes_of(plan, rounds.size), losses_of(plan))


def losses_of(plan: Plan) -> list[Loss]:
    found = list[Loss]()
    for before, phase in zip((None, *plan.of(*VALUE_KINDS)), plan.of(*VALUE_KINDS), strict=False):
        code = phase.code.summability.value if phase.code else ""
        sealed = before is not None and phase.code is not None and forwards_sealed(before, phase)
        found.append(Loss(phase.name, code, bool(phase.select), sealed, bool(phase.merge)))
    return found


def phases_of(rounds: Rounds) -> tuple[list[Steps], list[Steps]]:
    pushes, pulls = ([steps_of(phase) for phase in rounds.of(kind)] for kind in VALUE_KINDS)
    return pushes, pulls
