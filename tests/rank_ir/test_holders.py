"""Programs of ranks by holders, and programs as texts."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from tests.rank_ir.test_lower import assert_numbers_are_used, merges_of
from tests.support.plans import plan_of
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.api import rank_programs
from zenc.errors import ZencError
from zenc.plan.requirements import allowed
from zenc.rank_ir.ir import WHOLE, Agree, Carries, RankProgram, Split, made_by, used_by
from zenc.rank_ir.lower import lower, lower_all
from zenc.rank_ir.text import ShownProgram

COMMUNICATIONS = ("point_to_point then ring", "ring", "point_to_point", "hierarchy then point_to_point")
VARIANTS = [(each, how) for each in COMMUNICATIONS for how in ("incremental", "one_shot")]


def programs(communication: str, aggregation: str, size: int, announce: str = "ring") -> tuple[RankProgram, ...]:
    text = (
        f"scheme mine {{ communication: {communication} aggregation: {aggregation} partition: parallelism "
        f"balance: balanced by holders announce: {announce} }}"
    )
    return lower_all(plan_of(text), size)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_both_sides_of_a_message_know_what_it_brings(communication, aggregation, size):
    on_the_way: dict[tuple[str, int, int, int], list[list[object]]] = defaultdict(list)
    for of in programs(communication, aggregation, size):
        assert_numbers_are_used(of)
        for phase in of.phases:
            for exchange in phase.exchanges:
                for outgoing, messages in ((True, exchange.sends), (False, exchange.receives)):
                    for message in messages:
                        ends = (of.rank, message.peer) if outgoing else (message.peer, of.rank)
                        brings = [(of.segments[s].part, of.segments[s].ranks) for s in message.segments]
                        on_the_way[(phase.kind, exchange.number, *ends)].append([*brings])
    assert all(len(sides) == 2 and sides[0] == sides[1] for sides in on_the_way.values())
    assert bool(on_the_way) == (size > 1)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
def test_every_set_comes_before_ranks_agree_and_every_part_is_complete(communication, aggregation):
    for of in programs(communication, aggregation, 4):
        announce, push, pull = of.phases
        *exchanges, agree, split = announce.statements
        assert isinstance(agree, Agree) and isinstance(split, Split)
        assert [of.segments[each].ranks for each in agree.sets] == [(0,), (1,), (2,), (3,)]
        assert {each for exchange in exchanges for each in made_by(exchange)} == {*agree.sets} - {agree.sets[of.rank]}
        assert {of.segments[each].part for each in agree.sets} == {WHOLE}
        assert (split.segment, split.results) == (of.pack.results[0], of.own)
        assert [of.segments[each].part for each in of.expand.segments] == [0, 1, 2, 3]
        assert {of.segments[each].ranks for each in of.expand.segments} == {(0, 1, 2, 3)}
        assert of.expand.sets == agree.sets and set(agree.sets) <= set(of.expand.frees)
        assert [phase.kind for phase in (announce, push, pull)] == ["announce", "push", "pull"]
        assert [phase.carries for phase in of.phases] == [Carries.SETS, Carries.ROWS, Carries.ROWS]


def test_an_owner_sums_what_holders_send():
    of = lower(plan_of_shipped("holders"), 3, 1)
    assert [[of.segments[each].ranks for each in merge.segments] for merge in merges_of(of)] == [[(0,), (1,), (2,)]]
    assert [each.peers for each in of.statements if isinstance(each, Agree)] == [(0, 2)]


OWN = "scheme own { communication: ring aggregation: one_shot partition: parallelism balance: balanced by holders"


@pytest.mark.parametrize("inside", ["balanced", "dense_ring", "hierarchical_centralization"])
@pytest.mark.parametrize("announce", ["ring", "directory"])
def test_the_program_of_an_outermost_tier_is_that_of_its_group_alone(inside, announce):
    """Only the numbers of steps differ, which count over all tiers, in one order on all ranks."""
    text = f"{OWN} announce: {announce} }} scheme two {{ tier a(2): {inside} tier b: own }}"
    alone = lower_all(plan_of(f"{OWN} announce: {announce} }}"), 3)
    for of in lower_all(plan_of(text, scheme="two"), 6):
        assert_numbers_are_used(of)
        assert of.across is not None and of.across.ranks == (of.rank % 2, of.rank % 2 + 2, of.rank % 2 + 4)
        inner, expected = of.across.program, alone[of.rank // 2]
        assert (inner.segments, inner.own, inner.expand) == (expected.segments, expected.own, expected.expand)
        for phase, other in zip(inner.phases, expected.phases, strict=True):
            assert (phase.kind, phase.carries) == (other.kind, other.carries)
            assert [(s.sends, s.receives) for s in phase.exchanges] == [(s.sends, s.receives) for s in other.exchanges]
        every = [phase.exchanges for phase in (*of.phases[:-1], *inner.phases, of.phases[-1])]
        steps = [exchange.number for exchanges in every for exchange in exchanges]
        assert steps == list(range(1, of.exchanges + 1))
        assert of.segments[of.across.segment].ranks == (of.rank // 2 * 2, of.rank // 2 * 2 + 1)
        assert of.segments[of.across.result].ranks == tuple(range(6))


def shown(name: str, size: int, rank: int = 1, units: int = 4000) -> ShownProgram:
    plan = plan_of_shipped(name)
    parts = plan.parts(size)
    return ShownProgram(name, lower(plan, size, rank), (units // parts,) * parts, 64, 4)


@pytest.mark.one_in(1)
@pytest.mark.parametrize("name", ["balanced", "holders", "dense_ring"])
def test_programs_are_shown_as_they_were(assert_golden, name):
    assert_golden(f"{name}.program.txt", shown(name, 4).text() + "\n")


@pytest.mark.parametrize("name", SHIPPED)
def test_all_statements_are_shown(name):
    size = allowed(plan_of_shipped(name), (3, 4, 2, 8))[0]
    of = shown(name, size)
    lines, data = of.text().splitlines(), json.loads(json.dumps(of.to_json()))
    statements = list(of.program.statements)
    assert sum(line.startswith("  ") for line in lines) == len(statements)
    assert all(any(line.startswith(f"{phase.name}: ") for line in lines) for phase in of.program.phases)
    found = [data["pack"], *(each for phase in data["phases"] for each in phase["statements"]), data["expand"]]
    assert [each["operation"] for each in found] == [type(each).__name__.lower() for each in statements]
    assert [each["frees"] for each in found] == [list(each.frees) for each in statements]
    for each, statement in zip(found, statements, strict=True):
        sent = [segment for message in each.get("sends", ()) for segment in message["segments"]]
        assert (sent or each.get("of", [])) == list(used_by(statement))


def test_bytes_are_known_where_segments_are_full():
    """A message has 48 bytes of header, 16 for the segment, and 1000 rows of 256 bytes."""
    sends = [
        [message["bytes"] for each in phase["statements"] for message in each.get("sends", ())]
        for name in ("dense_ring", "balanced")
        for phase in shown(name, 4).to_json()["phases"]
    ]
    assert sends == [[256_064] * 3, [256_064] * 3, [None] * 3, [None] * 3]


def test_bytes_of_codes_are_known_and_losses_shown():
    """1000 rows of 64 values take a bit each, and 4 bytes for each block of 2048."""
    of = shown("one_bit", 4)
    sends = {message["bytes"] for phase in of.to_json()["phases"] for each in phase["statements"]
             for message in each.get("sends", ())}  # fmt: skip
    assert sends == {48 + 16 + 8000 + 128}
    assert of.text().count("as sign(2048)    # keeps what is lost") == 4
    short = rank_programs("sketch_sgd", 4, 2, units=1000)["sketch_sgd"]
    assert sum(short.slots) * short.width == 3_200 == 0.05 * 64_000 and "  select     sketch(" in short.text()


def test_the_api_shows_every_candidate_of_a_choice():
    assert list(rank_programs("balanced", 4, 2)) == ["balanced"]
    several = rank_programs("auto", 4, 2)
    assert len(several) > 1 and all(each.program.rank == 2 for each in several.values())
    with pytest.raises(ZencError, match="there is no rank 4 among 4"):
        rank_programs("balanced", 4, 4)
