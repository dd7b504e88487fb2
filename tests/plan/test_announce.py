"""The announcement is proved like a push, and with it every unit is summed once for any holder sets and owners."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.plans import plan_of
from tests.support.refusals import refusals
from zenc.errors import ArtifactError, SchemeError, VerificationError
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.unroll import Round, expand
from zenc.rank_ir.exchanges import schedules
from zenc.scheme.model import Holders, Permutation
from zenc.verify.proof import verify, verify_all

COMMUNICATIONS = ("point_to_point", "ring", "hierarchy", "point_to_point then ring", "hierarchy then point_to_point")


TO_ALL = "step { for d in 1 .. size - 1 { send all to (rank + d) mod size } }"


def holders(
    communication: str = "point_to_point then ring", aggregation: str = "incremental", more: str = "", first: str = ""
) -> Plan:
    return plan_of(
        f"{first}scheme mine {{ communication: {communication} aggregation: {aggregation} "
        f"partition: parallelism balance: balanced by holders {more} }}"
    )


@pytest.mark.parametrize("announce", ["", "announce: ring", "announce: point_to_point"])
def test_it_is_proved_for_1_to_40_ranks(announce):
    for proof in verify_all(holders(more=announce), range(1, 41)):
        assert proof.rounds["announce"] == (min(proof.size - 1, 1) if "ring" not in announce else proof.size - 1)
        assert proof.parts == proof.size


@pytest.mark.parametrize(
    "moves, size, identifier, words",
    [
        ("step { send all to 0 where rank > 0 }", 3, "never-announced", "1 never learns which units ranks 0 and 2"),
        (f"{TO_ALL} step {{ send all to 0 where rank == 1 }}", 3, "counted-twice", "rank 0's index set twice"),
        ("step { send all of 2 to 1 where rank == 0 }", 3, "nothing-to-send", "nothing of rank 2's index set"),
        ("step { send part 1 to 0 where rank > 0 }", 2, "no-such-part", "the parts are 0 to 0"),
    ],
)
def test_what_is_wrong_with_it_is_told_at_its_line(moves, size, identifier, words):
    plan = holders(more=f"announce: schedule {{\npush {{ {moves} }} pull {{ }} }}")
    first = refusals(VerificationError, verify, plan, size)[0]
    assert first.id == identifier and words in first.message and first.span.line == 2
    assert "part 0" not in first.message.replace("parts are 0", "")


@pytest.mark.parametrize("by", ["", "by ring", "by hierarchy", "by bruck", "by point_to_point then hierarchy"])
def test_a_directory_is_proved_for_1_to_40_ranks(by):
    """A directory has a pull only among as many ranks as it is for: fewer hear all sets there."""
    sizes = range(8 if "hierarchy" in by else 1, 41)  # recursive doubling does not gather among 3
    for proof in verify_all(holders(more=f"announce: directory(from = 8) {by}"), sizes):
        assert ("directory" in proof.rounds) == (proof.size >= 8)
        assert "bruck" not in by or proof.rounds.get("directory") in (None, (proof.size - 1).bit_length())


@pytest.mark.parametrize(
    "push, pull, identifier, words",
    [
        ("send part 0 to 0 where rank == 1", "", "never-complete", "no rank has more of it when the announce ends"),
        ("send part 1 - rank to 1 - rank", "", "never-arrives", "gets part 1: the directory ends without it"),
        ("send all to 0 where rank == 1", "send part 1 to 0 where rank == 1", "sent-incomplete", "directory, step 1"),
        ("send part 1 - rank to 1 - rank", "send part 2 to 0 where rank == 1", "no-such-part", "the parts are 0 to 1"),
    ],
)
def test_what_is_wrong_with_a_directory_is_told_at_its_line(push, pull, identifier, words):
    own = f"schedule own {{\npush {{ step {{ {push} }} }}\npull {{ {pull and f'step {{ {pull} }}'} }} }}\n"
    first = refusals(VerificationError, verify, holders(more="announce: directory by own", first=own), 2)[0]
    assert first.id == identifier and words in first.message and first.span.line in (2, 3)


def test_only_its_push_counts():
    """Recursive doubling folds ranks beyond a power of two, and gives them the result in the pull: too late."""
    verify(holders(more="announce: hierarchy"), 8)
    with pytest.raises(VerificationError, match="never learns which units"):
        verify(holders(more="announce: hierarchy"), 6)


@pytest.mark.parametrize("announce", ["ring", "directory(from = 3) by ring"])
def test_a_plan_comes_back_from_json(announce):
    plan = holders(more=f"announce: {announce}")
    again = plan_from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and again.digest == plan.digest
    assert plan.digest != holders().digest


def test_a_plan_announces_under_holders_only():
    data = json.loads(json.dumps(holders().to_json()))
    by_directory = {"kind": "holders", "directory": 3}
    wrong = ({**data, "mapping": {"kind": "contiguous"}}, {**data, "mapping": by_directory})
    for changed in (*wrong, {k: v for k, v in data.items() if k != "announce"}):
        with pytest.raises(ArtifactError, match=r"error\[bad-plan\]"):
            plan_from_json(changed)


@pytest.mark.parametrize(
    "text, words",
    [
        ("partition: centralization balance: balanced by holders", "there is one part only"),
        ("partition: parallelism balance: balanced by holders push: dense", "no format for the push"),
        ("partition: parallelism balance: balanced by holders pull: elias_fano", "no format for the pull"),
        ("partition: parallelism balance: balanced by holders(3)", "takes no arguments"),
        ("partition: parallelism balance: balanced by holders announce: rong", "did you mean 'ring'"),
        (
            "partition: parallelism balance: balanced by holders announce: directory(0)",
            "for 1 rank or more, not from 0",
        ),
        ("partition: parallelism balance: balanced by holders announce: directory(1.5)", "an integer is needed"),
        (
            "partition: parallelism balance: balanced by holders announce: directory then ring",
            "one schedule, or by two",
        ),
        ("partition: parallelism balance: balanced by holders announce: directory by rong", "did you mean 'ring'"),
        ("partition: parallelism balance: balanced by holder", "did you mean 'holders'"),
    ],
)
def test_what_makes_no_sense_beside_it_is_refused(text, words):
    with pytest.raises(SchemeError, match=words):
        plan_of(f"scheme mine {{ communication: ring aggregation: incremental {text} }}")


KEEPS = "scheme top { communication: ring aggregation: one_shot partition: centralization select: top(0.1) push: coo"
ENCODED = (
    "scheme own { communication: ring aggregation: incremental partition: parallelism balance: balanced by encoded "
    "push: dense as fixed(8) pull: dense as fixed(8) feedback: none }"
)


@pytest.mark.parametrize(
    "text, words",
    [
        ("scheme two { tier node(2): holders tier cluster: balanced }", "other tiers go on with its parts"),
        ("scheme two { tier node(2): holders tier cluster: holders }", "other tiers go on with its parts"),
        ("scheme two { tier a(2): balanced tier b: balanced balance: balanced by holders }", "share one cut"),
        (f"{KEEPS} feedback: residual }} scheme two {{ tier a(2): top tier b: holders }}", "'top' selects or encodes"),
        ("scheme two { tier a(2): balanced tier b: holders feedback: residual }", "feedback is about what is lost"),
        (f"{ENCODED} scheme two {{ tier a(2): own tier b: holders }}",
         "the same in every call"),
    ],
)  # fmt: skip
def test_what_tiers_beside_holders_may_not_have(text, words):
    with pytest.raises(SchemeError, match=words) as caught:
        plan_of(text, scheme="two")
    assert {each.id for each in caught.value.diagnostics if each.severity == "error"} == {"not-with-holders"}


TIERED = "scheme two { tier node(2): balanced tier cluster: holders(few = 3) }"


def test_the_outermost_tier_alone_has_owners_of_its_own():
    plan = plan_of(TIERED)
    assert (plan.mapping, plan.across) == (Permutation(0x5EED), Holders(directory=4))
    assert [phase.name for phase in plan.phases] == [
        *("push of node", "announce of cluster", "directory of cluster"),
        *("push of cluster", "pull of cluster", "pull of node"),
    ]
    assert plan_of("scheme one { tier cluster: holders }").mapping == Holders(directory=17), "which then are all ranks"
    nested = plan_of(f"{TIERED} scheme three {{ tier rack(3): dense_ring tier room: two }}", scheme="three")
    assert [tier.name for tier in nested.tiers] == ["rack", "room.node", "room.cluster"] and nested.across is not None
    again = plan_from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and again.digest == plan.digest


@pytest.mark.parametrize("inside", ["balanced", "hierarchical_centralization", "dense_ring"])
@pytest.mark.parametrize(
    "announce", ["point_to_point", "ring", "directory by ring", "directory by point_to_point then bruck"]
)
def test_it_is_proved_for_any_number_of_groups(inside, announce):
    """Each rank hears the sets of its group, and each group has a directory."""
    outer = holders(more=f"announce: {announce}")
    text = (
        "scheme own { communication: ring aggregation: incremental partition: parallelism balance: balanced by holders"
    )
    plan = plan_of(
        f"{text} announce: {announce} }} scheme two {{ tier node(2): {inside} tier cluster: own }}", scheme="two"
    )
    for proof, alone in zip(verify_all(plan, range(2, 20, 2)), verify_all(outer, range(1, 10)), strict=True):
        assert proof.rounds["announce"] == alone.rounds["announce"]
        assert proof.rounds.get("directory") == alone.rounds.get("directory")


def test_a_group_that_does_not_hear_all_is_a_counterexample():
    text = TIERED.replace("holders(few = 3)", "own")
    own = (
        "scheme own { communication: ring aggregation: incremental partition: parallelism balance: balanced by holders"
    )
    moves = "push { step { send all to rank + 1 where rank == 0 } } pull { }"
    plan = plan_of(f"{own} announce: schedule {{ {moves} }} }} {text}", scheme="two")
    (found,) = refusals(VerificationError, verify, plan, 6)
    assert found.id == "never-announced" and found.message == "rank 0 never learns which units ranks 2 and 4 have"


def forged(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data = json.loads(json.dumps(plan_of(TIERED).to_json()))
    change(data)
    return data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("across"),
        lambda data: data.update(mapping={"kind": "holders"}),
        lambda data: data.update(across={"kind": "contiguous"}),
        lambda data: data.update(across={"kind": "holders"}),
        lambda data: data.update(feedback="residual"),
        lambda data: data["announce"].update(tier=0),
        lambda data: data["pushes"][1].update(format="coo"),
        lambda data: data["pushes"][0].update(select="top(0.1)"),
        lambda data: data["pushes"][0].update(code="f16"),
    ],
)
def test_a_forged_plan_of_tiers_is_refused(change):
    assert plan_from_json(forged(lambda data: None))
    with pytest.raises(ArtifactError):
        plan_from_json(forged(change))


def test_tiers_inside_move_parts_whole():
    """Inner tiers can't tell what the outermost tier makes of a part."""

    def halved(data: dict[str, Any]) -> None:
        step = data["pushes"][0]["moves"][0]["step"][0]["do"][0]
        step["send"] = step["send"].split(" .. ")[0].replace("parts", "part")

    with pytest.raises(VerificationError, match="sends some of what the outermost tier makes of a part") as refused:
        verify(plan_from_json(forged(halved)), 4)
    assert refused.value.diagnostics[0].id == "no-such-part"


def play(plan: Plan, size: int, units_of: list[set[int]], part_of: Callable[[int], int]) -> list[Counter]:
    """Return each rank's final units, with how often every contribution is in them: moves of whole parts, by hand."""
    rounds, steps = expand(plan, size), schedules(plan, size, range(size)).of_rank
    expected: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for step in chain.from_iterable(of_rank["push"] for of_rank in steps.values()):
        for peer, pieces in step.receives.items():
            for piece in pieces:
                expected[step.rank, step.number, peer, piece.part] |= set(piece.ranks)
    first = len(rounds.of(PhaseKind.ANNOUNCE)[0]) + 1
    held = [
        [Counter({(unit, rank): 1 for unit in units if part_of(unit) == part}) for part in range(size)]
        for rank, units in enumerate(units_of)
    ]
    for number, round_ in enumerate(rounds.of(PhaseKind.PUSH)[0], first):
        before = [[Counter(part) for part in row] for row in held]
        for src, dst, part, origin in moves(round_):
            sent = Counter({k: n for k, n in before[src][part].items() if origin < 0 or k[1] == origin})
            held[dst][part] += sent
            ranks = expected[dst, number, src, part]
            assert set(sent) <= {(unit, rank) for rank in ranks for unit in units_of[rank]}
            if origin < 0:
                known = {unit for rank in ranks for unit in units_of[rank] if part_of(unit) == part}
                assert {unit for unit, _ in sent} == known, "a length that both sides know is wrong"
    for round_ in rounds.of(PhaseKind.PULL)[0]:
        before = [[Counter(part) for part in row] for row in held]
        for src, dst, part, _ in moves(round_):
            held[dst][part] = before[src][part]
    return [sum(parts, Counter()) for parts in held]


def moves(round_: Round) -> list[tuple[int, int, int, int]]:
    columns = np.stack((round_.src, round_.dst, round_.first, round_.last, round_.origin), axis=1).tolist()
    return [(src, dst, part, of) for src, dst, first, last, of in columns for part in range(first, last + 1)]


@settings(max_examples=tried(150), deadline=None)
@given(
    size=st.integers(1, 7),
    communication=st.sampled_from(COMMUNICATIONS),
    aggregation=st.sampled_from(["incremental", "one_shot"]),
    data=st.data(),
)
def test_every_unit_is_summed_once_whatever_the_holders_and_the_owners(size, communication, aggregation, data):
    """The owners of units are random; the proof is about parts."""
    units_of = [data.draw(st.sets(st.integers(0, 11))) for _ in range(size)]
    owners = data.draw(st.lists(st.integers(0, size - 1), min_size=12, max_size=12))
    expected = Counter({(unit, rank): 1 for rank, units in enumerate(units_of) for unit in units})
    for ended in play(holders(communication, aggregation), size, units_of, owners.__getitem__):
        assert ended == expected
