"""Tiers in plans: places of ranks and parts, proofs, and errors."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, INNER, tiered_text
from tests.support.executor import assert_plays, phases_of
from tests.support.fuzz import tried
from tests.support.plans import explain, plan_of
from tests.support.refusals import refusals
from zenc.errors import ArtifactError, VerificationError
from zenc.gradients.spec import GradientSpec
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import Plan
from zenc.plan.tier_layout import first_part, levels_of
from zenc.plan.unroll import expand
from zenc.rank_ir.lower import lower
from zenc.verify.proof import verify, verify_all

TWO = "scheme a { tier node(4): dense_ring tier cluster: balanced }"
THREE = "scheme a { tier x(2): dense_ring tier y(3): balanced tier z: agsparse }"


def refused(plan: Plan, size: int) -> tuple[str, str]:
    first = refusals(VerificationError, verify, plan, size)[0]
    return first.id, first.message


def own(tiers: str, push: str, pull: str) -> Plan:
    """Return tiers, of which ``mine`` is a schedule written here."""
    text = (
        f"scheme mine {{ communication: schedule {{ push {{ {push} }} pull {{ {pull} }} }} "
        f"aggregation: incremental partition: parallelism balance: imbalanced }} scheme tiered {{ {tiers} }}"
    )
    return plan_of(text, scheme="tiered")


@settings(max_examples=tried(60), deadline=None)
@given(
    inner=st.lists(st.sampled_from(INNER), min_size=1, max_size=2),
    outer=st.sampled_from(COMBINATIONS),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    count=st.integers(1, 4),
)
def test_whatever_schemes_are_composed_the_sum_is_proved(inner, outer, sizes, count):
    """The independent executor agrees, the plan comes back from JSON, and pinning changes no move."""
    sizes = sizes[: len(inner)]
    size = int(np.prod(sizes)) * count
    text = tiered_text(sizes, [*inner, outer])
    plan = plan_of(text, scheme="tiered")
    rounds, proof = verify(plan, size)
    assert proof.parts == plan.parts(size) and len(proof.owners) == proof.parts
    assert_plays(plan, rounds)
    again = plan_from_json(json.loads(plan.text()))
    assert again == plan and again.digest == plan.digest
    pinned = expand(plan_of(text, size, scheme="tiered"), size)
    assert phases_of(pinned) == phases_of(rounds)


def test_ranks_count_from_the_inside_and_the_inner_tier_cuts_first():
    plan = plan_of("scheme a { tier x(2): dense_ring tier y(3): dense_ring tier z: dense_ring }")
    levels = levels_of(plan, 24)
    assert [(v.name, v.inner, v.members, v.parts, v.width) for v in levels] == [
        ("x", 1, 2, 2, 12), ("y", 2, 3, 3, 4), ("z", 6, 4, 4, 1)
    ]  # fmt: skip
    ranks = np.arange(24)
    assert first_part(levels, ranks).tolist() == [r % 2 * 12 + r // 2 % 3 * 4 + r // 6 for r in range(24)]
    assert [list(levels[k].peers(9)) for k in range(3)] == [[8, 9], [7, 9, 11], [3, 9, 15, 21]]
    for level in levels:
        groups = level.group(ranks)
        for rank in range(24):
            assert np.flatnonzero(groups == groups[rank]).tolist() == list(level.peers(rank))


def test_every_rank_ends_with_the_part_of_its_place():
    """Part (p0 * 3 + p1) is at the rank whose places are p0 and p1, on the lowest machine that has it."""
    _, proof = verify(plan_of("scheme a { tier x(2): dense_ring tier y: balanced }"), 6)
    assert proof.owners == tuple(p0 + 2 * p1 for p0 in range(2) for p1 in range(3))


def test_moves_stay_in_their_tier():
    plan, size = plan_of(THREE), 24
    rounds = expand(plan, size)
    levels = levels_of(plan, size)
    for phase, _, round_ in rounds:
        level = levels[phase.tier.depth]
        assert (level.group(round_.src) == level.group(round_.dst)).all()


def test_steps_are_numbered_through_all_phases():
    done = lower(plan_of(TWO), 8, 5)
    numbers = [exchange.number for phase in done.phases for exchange in phase.exchanges]
    assert numbers == list(range(1, 3 + 1 + 1 + 3 + 1))


def test_a_plan_for_any_number_is_proved_for_whole_groups():
    assert [proof.size for proof in verify_all(plan_of(TWO))] == [4, 8, 12, 16]
    large = plan_of("scheme a { tier node(50): dense_ring tier cluster: balanced }")
    assert [proof.size for proof in verify_all(large)] == [50, 100, 150]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 10, 17])
def test_ranks_that_are_no_whole_groups(size):
    id, message = refused(plan_of(TWO), size)
    assert id == "tiers-do-not-divide" and "not whole groups of 4, which the tiers make: node(4)" in message


def test_the_nearest_numbers_are_named():
    refused = refusals(VerificationError, verify, plan_of(THREE), 10)
    assert refused[0].help == "use 6 or 12 ranks, or other sizes of the tiers"


PUSH = "step { for d in 1 .. size - 1 { send part (rank + d) mod size to (rank + d) mod size } }"
PULL = "step { for d in 1 .. size - 1 { send part rank to (rank + d) mod size } }"


def test_an_inner_tier_that_is_right_by_itself_but_ends_elsewhere():
    """Part r ends at rank r + 1, which is right for a whole scheme and useless for an inner tier."""
    push = "step { for d in 1 .. size - 1 { send part (rank + d - 1) mod size to (rank + d) mod size } }"
    pull = "step { for d in 1 .. size - 1 { send part (rank - 1) mod size to (rank + d) mod size } }"
    verify(own("tier y: mine", push, pull), 4)
    id, message = refused(own("tier x(2): mine tier y: dense_ring", push, pull), 4)
    assert id == "tier-incomplete"
    assert message == (
        "rank 0 ends the push of x without what rank 1 contributed to part 0, with which it goes on in the next tier"
    )
    verify(own("tier x(2): dense_ring tier y: mine", push, pull), 6)


def test_counterexamples_name_the_tier():
    half = PULL.replace("mod size }", "mod size where (rank + d) mod size > 0 }")
    id, message = refused(own("tier x(2): dense_ring tier y: mine", PUSH, half), 4)
    assert id == "sent-incomplete" and message.endswith("(pull of x, step 1)")
    twice = PUSH + " step { send part 0 to 0 where rank == 1 }"
    id, message = refused(own("tier x(2): dense_ring tier y: mine", twice, PULL), 4)
    assert id == "counted-twice" and message.endswith("(push of y, step 2)")


@pytest.mark.parametrize(
    ("push", "id", "message"),
    [
        ("step { send all to size where rank == 0 }", "no-such-rank",
         "rank 0 sends to rank 2, but its ranks of tier x are 0 to 1"),
        ("step { send all to rank - 1 where rank == 0 }", "no-such-rank", "rank 0 sends to rank -1"),
        ("step { send part size to 1 where rank == 0 }", "no-such-part",
         "rank 0 sends part 5, but its parts in tier x are 0 to 3"),
        ("step { send part 0 - 1 to 0 where rank == 1 }", "no-such-part", "rank 1 sends part -2"),
        ("step { send all to rank }", "send-to-self", "rank 0 sends to itself"),
    ],
)  # fmt: skip
def test_moves_that_leave_an_inner_tier(push, id, message):
    found = refused(own("tier x(2): mine tier y: dense_ring", push, PULL), 4)
    assert found[0] == id and found[1].startswith(message)


def test_moves_that_leave_the_outer_tier():
    push = "step { send all to size where rank == 0 }"
    found = refused(own("tier x(2): dense_ring tier y: mine", push, PULL), 4)
    assert found == ("no-such-rank", "rank 0 sends to rank 4, but its ranks of tier y are 0, 2")
    part = "step { send part size to 1 where rank == 0 }"
    found = refused(own("tier x(2): dense_ring tier y: mine", part, PULL), 4)
    assert found == ("no-such-part", "rank 0 sends part 2, but its parts in tier y are 0 to 1")


def test_one_shot_is_merged_when_its_tier_ends():
    """Pieces of a later tier hold the sum of a group each, and name the rank that held it."""
    text = (
        "scheme b { communication: schedule { push { for s in 0 .. size - 2 "
        "{ step { send all of (rank - s) mod size to (rank + 1) mod size } } } pull { } } "
        "aggregation: one_shot partition: centralization } scheme tiered { tier x(2): b tier y: b }"
    )
    seen = []
    plan = plan_of(text, scheme="tiered")
    verify(plan, 6, lambda phase, number, found: seen.append((phase.tier.depth, found.contributors, found.pieces)))
    assert [tier for tier, _, _ in seen] == [0, 1, 1]
    assert all((counts == 1 + tier).all() and (pieces == 1).all() for tier, counts, pieces in seen)
    id, message = refused(plan_of(text.replace("(rank - s)", "(rank - s - 1)"), scheme="tiered"), 6)
    assert id == "nothing-to-send" and message == "rank 0 has nothing of rank 1's part 0 to send (push of x, step 1)"


def test_sums_that_differ_between_the_ranks_of_a_group():
    """The inner tier leaves the whole sum at all three ranks, but added in different orders."""
    text = (
        "scheme b { communication: schedule { push { "
        "step { send all to 0 where rank > 0 send all to 1 where rank == 0 } "
        "step { send all to 1 where rank == 2 send all to 2 where rank == 1 } } pull { } } "
        "aggregation: AGGREGATION partition: centralization } scheme tiered { tier x(3): b tier y: agsparse }"
    )
    id, message = refused(plan_of(text.replace("AGGREGATION", "incremental"), scheme="tiered"), 6)
    assert id == "unequal-sums" and message.startswith("ranks 0 and 1 add up part 0 in different orders")
    verify(plan_of(text.replace("AGGREGATION", "one_shot"), scheme="tiered"), 6)


def test_prediction_counts_what_tiers_have_summed():
    """Every unit travels inside, and across the density is that of sums of 4, and of 8 on the way back."""
    load = GradientSpec(8000, 2, "f32", 0.05)
    explained = explain(plan_of(TWO), 8, 1, load)
    by_phase = {message.phase: message for message in explained.messages}
    assert list(by_phase) == ["push of node", "push of cluster", "pull of cluster", "pull of node"]
    assert [by_phase[name].contributors for name in by_phase] == [3, 4, 8, 8]
    dense = 8000 * 2 * 4 // 4
    assert abs(by_phase["push of node"].bytes - dense) < 200
    across, spread = 1000 * (1 - 0.95**4), 5 * (1000 * 0.95**4 * (1 - 0.95**4)) ** 0.5
    assert abs(by_phase["push of cluster"].bytes - (across * 8 + 1000 / 8)) < spread * 8 + 64
    text = explained.text()
    assert "push of cluster, step 1" in text and "tiers: node of 4, ring; cluster of 2, point_to_point" in text


@pytest.mark.parametrize("name", ["tiers", "pushes", "pulls"])
def test_json_of_tiers_that_do_not_fit(name):
    data = json.loads(plan_of(TWO).text())
    for damaged in (data[name][:1], data[name][::-1], [*data[name], data[name][0]], [{**data[name][0], "size": 0}]):
        with pytest.raises(ArtifactError, match="bad-plan"):
            plan_from_json({**data, name: damaged})
    assert plan_from_json(data).to_json() == data
