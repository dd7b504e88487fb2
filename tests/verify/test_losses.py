"""Losses are kept: programs are played with exact numbers and codes that are arbitrary functions; mutants are found."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from zlib import crc32

import pytest

from tests.support.cases import COMBINATIONS, INNER, WASTEFUL, scheme_text, tiered_text
from tests.support.executor import assert_plays
from tests.support.plans import lossy, plan_of, selecting_merges
from tests.support.player import Tree, play, sum_of
from tests.support.refusals import refusals
from zenc.errors import VerificationError
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.rank_ir.ir import Encode, Exchange, Expand, Merge, RankProgram, Select, Statement
from zenc.rank_ir.lower import lower_all
from zenc.rank_ir.uses import with_uses
from zenc.scheme.compression import Fixed, Integers, Rounded, Vote
from zenc.scheme.model import Encoded
from zenc.verify.proof import verify

HALF, BYTE = Rounded("bf16"), Integers(8)
PARTS = "partition: parallelism balance: imbalanced"


def value(tree: Tree, part: int) -> int:
    """Return the numbers of ``tree``, with arbitrary losses for codes and selections."""
    return _with_loss(tree, part)[0]


def _with_loss(tree: Tree, part: int) -> tuple[int, int]:
    """Return the value, and the loss where ``tree`` is encoded, or selected of."""
    if isinstance(tree, int):
        return crc32(f"{tree} {part}".encode()), 0
    if not isinstance(tree[0], str):
        return sum(value(branch, part) for branch in tree), 0
    operation, inner = tree[0], value(tree[-1], part)
    loss = crc32(f"{operation} {tree[1]} {part} {inner}".encode()) if operation in ("encoded", "selected") else 0
    return inner - loss, loss


def unkept(plan: Plan, programs: tuple[RankProgram, ...]) -> list[int]:
    """Return parts where gradients are not result + residuals, in exact numbers; all ranks end with the plan's sums."""
    players, size = play(programs), len(programs)
    held = assert_plays(plan, expand(plan, size))
    for player, wanted in zip(players, held, strict=True):
        found = [player.trees[segment] for segment in player.what.expand.segments]
        assert [sum_of(tree) for tree in found] == [tree for ((_, tree),) in wanted]
    lost = []
    for part, segment in enumerate(programs[0].expand.segments):
        own = [value(rank, part) for rank in range(size)]
        kept = sum(_with_loss(tree, of)[1] for player in players for of, tree in player.kept if of == part)
        if programs[0].select:
            push = next(phase.name for phase in programs[0].phases if phase.kind.value == "push")
            kept += sum(_with_loss(("selected", push, rank), part)[1] for rank in range(size))
        if sum(own) != value(players[0].trees[segment], part) + kept:
            lost.append(part)
    return lost


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_gradients_are_the_result_and_what_is_kept(number):
    """Several ranks may encode or select of one sum, in tiers or under centralization; one of them keeps the loss."""
    inner = INNER[number % len(INNER)]
    for sizes in (((5,), (2, 3)), ((4,), (2, 2, 2)), ((3, 2),))[number % 3]:
        tiers = (*[inner for _ in sizes[1:]], COMBINATIONS[number])
        plan = plan_of(tiered_text(sizes[:-1], tiers), scheme="tiered")
        for codes in ((HALF,), (None,) * len(sizes) + (BYTE,)):
            compressed = lossy(plan, *codes)
            assert unkept(compressed, lower_all(compressed, prod(sizes))) == []


def test_what_is_encoded_in_vain_is_kept_by_nobody():
    """Rank 1 sends on what no result has; rank 2 sends its contribution twice, and loses once."""
    text = """
        scheme wasteful {
            communication: schedule {
                push {
                    step { send all to 0 where rank != 0  send all to 1 where rank == 2 }
                    step { send all to 3 where rank == 1 }
                }
                pull { step { for r in 1 .. 3 { send all to r where rank == 0 } } }
            }
            aggregation: incremental partition: centralization balance: imbalanced
        }"""
    plan = lossy(plan_of(text), HALF)
    programs = lower_all(plan, 4)
    assert unkept(plan, programs) == []
    keeps = [[each.keeps for each in program.statements if isinstance(each, Encode)] for program in programs]
    assert keeps == [[True], [True, False], [True], [True]]


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_what_merges_leave_out_is_kept_once(number):
    """Ranks that make the same sum on its way leave out the same; where it is in the result, the lowest keeps it."""
    tiers = (INNER[number % len(INNER)], COMBINATIONS[number])
    plans = [(plan_of(scheme_text(*COMBINATIONS[number])), size) for size in (4, 7)]
    for plan, size in (*plans, (plan_of(tiered_text((2,), tiers), scheme="tiered"), 6)):
        alone = selecting_merges(plan)
        for merging in (alone, selecting_merges(lossy(plan, HALF)), selecting_merges(lossy(plan, None))):
            assert unkept(merging, lower_all(merging, size)) == []


def test_a_sum_that_is_made_in_vain_leaves_nothing_out():
    """Rank 1 adds up what it is sent again, complete; only rank 0 keeps what it leaves out."""
    plan = selecting_merges(plan_of(WASTEFUL))
    programs = lower_all(plan, 3)
    assert unkept(plan, programs) == []
    selects = [[each.keeps for each in program.statements if isinstance(each, Select)] for program in programs]
    assert selects == [[True], [], []]


def test_all_contributions_vote_once():
    """A rank encodes what it sums itself as well, and a sum of votes is no vote of another push step."""
    plan = lossy(plan_of(scheme_text("point_to_point", "incremental", PARTS)), Vote(8))
    programs = lower_all(plan, 4)
    assert unkept(plan, programs) == [] and set(verify(plan, 4)[1].hops.values()) == {1}
    summed = [each.segments for program in programs for each in program.statements if isinstance(each, Merge)]
    assert all(programs[0].segments[segment].code == Vote(8) for segments in summed for segment in segments)
    with pytest.raises(VerificationError, match="lossy-hop"):
        verify(lossy(plan_of(scheme_text("ring", "incremental", PARTS)), Vote(8)), 4)


def test_integers_of_one_scale_lose_nothing_on_the_way():
    for combination in COMBINATIONS:
        plan = lossy(plan_of(scheme_text(*combination)), Fixed(8), select=())
        proof = verify(plan, 5)[1]
        assert proof.keepers is not None and len(proof.keepers.rank) == 0 and set(proof.hops.values()) == {0}


def used(statement: Statement | Expand, old: int, new: int) -> Statement | Expand:
    """Return ``statement`` with segment ``new`` in place of ``old``."""

    def swap(segments: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([new if segment == old else segment for segment in segments])

    match statement:
        case Exchange(sends=sends):
            return replace(statement, sends=tuple([replace(each, segments=swap(each.segments)) for each in sends]))
        case Merge() | Expand():
            return replace(statement, segments=swap(statement.segments))
    return replace(statement, segment=swap((statement.segment,))[0])


def mutants(program: RankProgram) -> Iterator[tuple[str, RankProgram]]:
    """Yield ``program`` with one encode or select dropped, doubled, only sent, only held, or not kept."""
    for target in list(program.statements):
        if not isinstance(target, Encode | Select):
            continue
        again = replace(target, segment=target.result, result=len(program.segments))
        longer = replace(program, segments=(*program.segments, program.segments[target.result]))
        back, on = (target.result, target.segment), (target.result, again.result)
        yield "kept", changed(program, target, [replace(target, keeps=not target.keeps)], (0, 0), lambda s: False)
        yield "dropped", changed(program, target, [], back, lambda s: True)
        yield "doubled", changed(longer, target, [target, again], on, lambda s: True)
        yield "not held", changed(program, target, [target], back, lambda s: not isinstance(s, Exchange))
        yield "not sent", changed(program, target, [target], back, lambda s: isinstance(s, Exchange))


def changed(
    program: RankProgram,
    target: Statement,
    by: list[Statement],
    swap: tuple[int, int],
    where: Callable[[Statement | Expand], bool],
) -> RankProgram:
    """Return ``program`` with ``by`` in place of ``target``, and later uses of a segment swapped ``where`` it says."""

    def of(statement: Statement | Expand) -> Statement | Expand:
        return used(statement, *swap) if where(statement) else statement

    phases = tuple(
        replace(phase, statements=tuple([n for s in phase.statements for n in (by if s is target else [of(s)])]))
        for phase in program.phases
    )
    return with_uses(replace(program, phases=phases, expand=of(program.expand)))


def test_mutants_of_programs_are_found():
    rng, found = random.Random(17), dict.fromkeys(("kept", "dropped", "doubled", "not held", "not sent"), 0)
    for number, combination in enumerate(COMBINATIONS):
        plan = lossy(plan_of(scheme_text(*combination, "auto", "coo")), HALF, select=((), TOP)[number % 2])
        plan = selecting_merges(plan) if number % 3 == 0 else plan
        programs = lower_all(plan, 4)
        rank = rng.randrange(4)
        for name, mutant in mutants(programs[rank]):
            if mutant == programs[rank]:
                continue
            found[name] += 1
            with pytest.raises((AssertionError, KeyError)):
                assert unkept(plan, (*programs[:rank], mutant, *programs[rank + 1 :])) == []
    assert min(found.values()) > 10, found


TOP = lossy(plan_of(scheme_text(*COMBINATIONS[0])), None).phases[0].select


def refused(plan: Plan, size: int) -> str:
    first = refusals(VerificationError, verify, plan, size)[0]
    assert first.span is not None
    return f"{first.id}: {first.message}"


def test_a_second_loss_in_a_phase_is_refused_with_a_counterexample():
    ring = plan_of(scheme_text("ring", "incremental", "partition: parallelism balance: imbalanced"))
    assert refused(lossy(ring, BYTE), 4) == (
        "lossy-hop: rank 0 would encode again what rank 3 had encoded, and lose as int(8, 2048) a second time"
    )
    assert verify(lossy(ring, None, BYTE), 4)[1].hops == {"pull": 1}
    assert verify(lossy(ring, HALF), 4)[1].hops == {"push": 3, "pull": 1}
    assert verify(lossy(ring, BYTE), 2)[1].hops == {"push": 1, "pull": 1}


def test_integers_that_were_encoded_otherwise_are_refused():
    plan = plan_of(tiered_text([2], [INNER[-1], COMBINATIONS[-1]]), scheme="tiered")
    assert refused(lossy(plan, Fixed(8), BYTE, None, Fixed(8)), 4).startswith(
        "lossy-hop: rank 0 would send as fixed(8) what has been encoded in another way"
    )


def test_ranks_that_would_not_know_a_part_s_encoded_size_are_found():
    tiers = plan_of(tiered_text([2], [INNER[-1], COMBINATIONS[-1]]), scheme="tiered")
    inside, throughout = (lossy(tiers, None, None, HALF, code) for code in (None, HALF))
    assert refused(replace(inside, mapping=Encoded()), 4).startswith(
        "unknown-sizes: rank 0 ends with the sum of part 0 as values, so it can't know how long it is encoded"
    )
    assert verify(replace(throughout, mapping=Encoded()), 4)[1].size == 4


UNEVEN = """
scheme uneven {
    communication: schedule {
        push {
            step { send all to 1 - rank where rank < 2 }
            step {
                send all to 0 where rank == 2
                send all to 1 where rank == 2
                send all to 2 where rank == 0
            }
        }
        pull { }
    }
    aggregation: incremental partition: centralization balance: imbalanced
}
"""


def test_ranks_that_add_other_values_are_refused():
    """Rank 0 sends its sum, and so holds it rounded; rank 1 does not. Without the code both end with the same."""
    plan = plan_of(UNEVEN)
    verify(plan, 3)
    assert refused(lossy(plan, HALF, select=()), 3).startswith(
        "unequal-sums: ranks 0 and 1 add up part 0 of different values"
    )
