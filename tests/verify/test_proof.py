"""Right schedules are proved, wrong ones give a counterexample at the user's line."""

import time

import pytest

from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, plan_of, plan_with
from tests.support.refusals import refusals
from tests.support.shipped import cases, plan_of_shipped
from zenc.errors import VerificationError
from zenc.plan import unroll
from zenc.plan.ir import PhaseKind
from zenc.plan.unroll import expand
from zenc.verify.proof import UNPINNED_SIZES, prove_halves, verify, verify_all
from zenc.verify.provenance import own_contributions


def found(push: str, pull: str, size: int, **more: str) -> tuple[str, str, int]:
    """Return (id, message, line) of the first diagnostic of a schedule that must not be proved."""
    first = refusals(VerificationError, verify, plan_with(push, pull, **more), size)[0]
    assert first.span is not None and first.span.source.name == "mine.zen"
    return first.id, first.message, first.span.line


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_all_combinations_are_proved_for_1_to_40_ranks(combination):
    plan = plan_of(scheme_text(*combination))
    for proof in verify_all(plan, range(1, 41)):
        assert proof.parts == (1 if "centralization" in combination[2] else proof.size)
        assert len(proof.owners) == proof.parts


def test_patterns_can_be_mixed_under_parallelism():
    for push in ("ring", "hierarchy", "point_to_point"):
        for pull in ("ring", "hierarchy", "point_to_point"):
            plan = plan_of(
                scheme_text(f"{push} then {pull}", "incremental", "partition: parallelism balance: imbalanced")
            )
            assert len(verify_all(plan)) == len(UNPINNED_SIZES)


def test_one_rank_does_nothing():
    rounds, proof = verify(plan_with(DIRECT_PUSH, DIRECT_PULL), 1)
    assert rounds.of(PhaseKind.PUSH) == rounds.of(PhaseKind.PULL) == ((),) and proof.owners == (0,)


def test_every_rank_owns_its_part_in_the_shipped_patterns():
    for combination in COMBINATIONS:
        if "parallelism" in combination[2]:
            assert verify(plan_of(scheme_text(*combination)), 7)[1].owners == tuple(range(7))


@pytest.mark.parametrize("aggregation", ["incremental", "one_shot"])
@pytest.mark.parametrize("origin", ["0 - 1", "0 - 2", "rank - size", "size", "0 - 2 ^ 61", "1 - 2 ^ 62"])
def test_what_a_rank_that_is_none_gave(aggregation, origin):
    """A schedule can't name the number that stands for all ranks in moves."""
    push = f"step {{ send all of {origin} to 0 where rank > 0 }}"
    pull = "for r in 1 .. size - 1 { step { send all to r where rank == 0 } }"
    whole = "partition: centralization balance: imbalanced"
    identifier, message, line = found(push, pull, 3, aggregation=aggregation, parts=whole)
    assert (identifier, line) == ("no-such-rank", 3) and "gave, but the ranks are 0 to 2" in message


def test_a_rank_that_is_left_out_of_the_push():
    push = DIRECT_PUSH.replace("to (rank + d) mod size", "to (rank + d) mod size where rank != 2")
    identifier, message, line = found(push, DIRECT_PULL, 4)
    assert (identifier, line) == ("never-complete", 3)
    assert "part 0 from rank 2" in message


def test_a_rank_that_is_left_out_of_the_pull():
    pull = DIRECT_PULL.replace("mod size }", "mod size where (rank + d) mod size != 3 }")
    identifier, message, line = found(DIRECT_PUSH, pull, 4)
    assert (identifier, line) == ("never-arrives", 5)
    assert message == "rank 3 never gets part 0: the pull ends without it"


def test_a_part_that_is_sent_twice():
    identifier, message, line = found(DIRECT_PUSH + "\nstep { send part 0 to 0 where rank == 1 }", DIRECT_PULL, 3)
    assert (identifier, line) == ("counted-twice", 4)
    assert "rank 0 would count rank 1's part 0 twice: it has it already, and rank 1 sends it (push, step 2)" in message


def test_a_part_that_is_sent_twice_in_one_step():
    push = "step { send part 0 to 0 where rank == 1\nsend parts 0 .. 1 to 0 where rank == 1 }"
    identifier, message, _ = found(push, "", 2)
    assert identifier == "counted-twice" and "rank 1 sends it twice" in message


def test_a_part_that_comes_by_two_ways():
    push = "step { send part 0 to 1 where rank == 2 }\nstep { send part 0 to 0 where rank == 1 or rank == 2 }"
    identifier, message, line = found(push, "", 3)
    assert (identifier, line) == ("counted-twice", 4) and "ranks 1 and 2 send it" in message


def test_a_pull_of_what_is_not_complete():
    identifier, message, line = found(DIRECT_PUSH, "step { send part 0 to rank - 1 where rank == 2 }", 3)
    assert (identifier, line) == ("sent-incomplete", 5)
    assert message.startswith("rank 2 sends part 0 to rank 1 before it is complete: it lacks what ranks 0 and 1")


def test_a_pull_that_brings_a_part_twice():
    identifier, message, line = found(DIRECT_PUSH, DIRECT_PULL + "\n" + DIRECT_PULL, 3)
    assert (identifier, line) == ("pulled-twice", 6) and "gets part" in message


@pytest.mark.parametrize(
    ("push", "identifier", "text"),
    [
        ("step { send all to rank }", "send-to-self", "rank 0 sends to itself"),
        (
            "step { send all to size where rank == 0 }",
            "no-such-rank",
            "rank 0 sends to rank 3, but the ranks are 0 to 2",
        ),
        ("step { send all to rank - 1 }", "no-such-rank", "rank 0 sends to rank -1"),
        ("step { send part size to 0 where rank == 1 }", "no-such-part", "rank 1 sends part 3"),
        ("step { send all of 9 to 0 where rank == 1 }", "no-such-rank", "what rank 9 gave"),
        ("step { send part 1 / rank to 0 }", "division-by-zero", "divides by zero for rank 0"),
        ("step { send part 1 mod (rank - 2) to 0 where rank > 0 }", "division-by-zero", "for rank 2"),
        ("step { send part 1 << 80 to 0 }", "bad-shift", "62 bits"),
        ("step { send part (1 << 61) * 8 to 0 }", "number-too-large", "beyond 2^62"),
        ("step { send part log2(rank) to 1 where rank == 0 }", "bad-log2", "log2 of a number below 1"),
    ],
)
def test_moves_that_make_no_sense(push, identifier, text):
    found_id, message, line = found(push, DIRECT_PULL, 3)
    assert (found_id, line) == (identifier, 3)
    assert text in message


@pytest.mark.slow
def test_loops_without_end_are_told_at_once():
    started = time.process_time()
    nested = "for i in 1 .. 100000 { for j in 1 .. 100000 { step { send all to 0 where rank == 9 } } }"
    assert found(nested, "", 3)[0] == "schedule-too-long"
    assert time.process_time() - started < 30


def test_of_needs_one_shot():
    push = "for s in 0 .. size - 2 { step { send all of (rank - s) mod size to (rank + 1) mod size } }"
    assert found(push, "", 3, parts="partition: centralization")[0] == "origin-merged"
    verify(plan_with(push, "", aggregation="one_shot", parts="partition: centralization"), 3)


def test_of_a_rank_whose_contribution_is_not_there():
    push = "step { send all of (rank + 1) mod size to (rank + 2) mod size }"
    identifier, message, _ = found(push, "", 3, aggregation="one_shot", parts="partition: centralization")
    assert (identifier, message) == ("nothing-to-send", "rank 0 has nothing of rank 1's part 0 to send (push, step 1)")


def test_sums_that_would_differ_in_the_last_bits():
    """Rank 0 adds all three at once; rank 1 adds 0 and 1, rounds, and then adds 2."""
    push = (
        "step { send all to 0 where rank > 0\nsend all to 1 where rank == 0 }\nstep { send all to 1 where rank == 2 }"
    )
    pull = "step { send all to 2 where rank == 0 }"
    identifier, message, line = found(push, pull, 3, parts="partition: centralization")
    assert (identifier, line) == ("unequal-sums", 2)
    assert message.startswith("ranks 0 and 1 add up part 0 in different orders")
    verify(plan_with(push, pull, aggregation="one_shot", parts="partition: centralization"), 3)


@pytest.mark.parametrize("size", [64, 1024])
def test_large_groups_are_proved_quickly(size):
    """The benchmark has the real bound; here nothing may grow out of hand."""
    started = time.process_time()
    verify(plan_of(scheme_text("point_to_point", "incremental", "partition: parallelism balance: imbalanced")), size)
    assert time.process_time() - started < 60


@pytest.mark.parametrize("to", ["rank", "rank + 1", "-1"])
def test_ranks_that_have_nobody_to_send_to_are_left_out_by_a_condition(to):
    refused = refusals(VerificationError, verify, plan_with(f"step {{ send all to {to} }}", ""), 2)
    assert {found.help for found in refused} == {"leave such ranks out: send ... where CONDITION"}


@pytest.mark.parametrize(("name", "size"), cases((2, 5, 8)))
def test_each_half_is_proved_alone(name, size):
    plan = plan_of_shipped(name, size)
    rounds, proof = verify(plan, size)
    owned = prove_halves(plan, rounds)
    assert (
        owned.shape == (size, proof.parts) and tuple(owned.argmax(axis=0)) == proof.owners and owned.any(axis=0).all()
    )


def test_halves_that_bring_too_little_are_found():
    """A push ends before the sum is whole, and a pull leaves a rank out."""
    for push, pull, found in (("", DIRECT_PULL, "never-complete"), (DIRECT_PUSH, "", "never-arrives")):
        plan = plan_with(push, pull)
        assert refusals(VerificationError, prove_halves, plan, expand(plan, 3))[0].id == found


def exchanged(order: list[int]) -> tuple[str, list[object]]:
    """Return a push in which ranks exchange by halves all that they hold, place i in place of rank ``order[i]``.

    Each rank's additions come with it as a tree, in which a rank adds in the order of those that held them.
    """
    steps, held = "", dict[int, object](enumerate(range(len(order))))
    for bit in range(len(order).bit_length() - 1):
        pairs = [(order[at], order[at ^ 1 << bit]) for at in range(len(order))]
        steps += "step { " + " ".join(f"send all to {dst} where rank == {src}" for src, dst in pairs) + " }\n"
        held = {rank: (held[min(rank, other)], held[max(rank, other)]) for rank, other in pairs}
    return steps, [held[rank] for rank in sorted(held)]


FOUR = [[0, 3, 1, 2], [0, 2, 3, 1], [3, 0, 2, 1], [1, 2, 0, 3]]
EIGHT = [
    [0, 3, 1, 2, 4, 7, 5, 6], [0, 1, 2, 3, 4, 7, 5, 6], [7, 1, 0, 2, 3, 4, 5, 6], [0, 2, 4, 6, 1, 3, 7, 5],
    [0, 4, 5, 1, 2, 6, 3, 7], [6, 5, 4, 3, 2, 0, 1, 7],
]  # fmt: skip


@pytest.mark.parametrize("order", [*FOUR, *EIGHT], ids=str)
def test_ranks_that_add_in_different_orders(order):
    """Contributions and trees are the same, but some rank adds two branches the other way round."""
    push, held = exchanged(order)
    assert len(set(map(repr, held))) > 1
    with pytest.raises(VerificationError, match="add up part 0 in different orders") as caught:
        verify(plan_with(push, "", parts="partition: centralization balance: imbalanced"), len(order))
    assert caught.value.diagnostics[0].id == "unequal-sums"


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 1, 3, 2], [0, 1, 2, 4, 3, 5, 6, 7]], ids=str)
def test_ranks_that_add_in_one_order(order):
    push, held = exchanged(order)
    assert len(set(map(repr, held))) == 1
    verify(plan_with(push, "", parts="partition: centralization balance: imbalanced"), len(order))


@pytest.mark.parametrize("loops", ["for i in 1 .. {n} {body}", "for a in 1 .. {n} / 10 {{ for b in 2 .. 10 {body} }}"])
def test_the_limit_of_loops_holds_for_all_of_a_phase_together(loops, monkeypatch):
    """A nested loop counts an iteration of the outer one, and its own, each time."""
    monkeypatch.setattr(unroll, "MOST_ITERATIONS", 200)
    body = "{ step { send all to 0 where rank == 9 } }"
    within, beyond = (found(loops.format(n=n, body=body), "", 3)[0] for n in (200, 210))
    assert within != "schedule-too-long" and beyond == "schedule-too-long"


def test_a_proof_that_memory_has_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would kill the process when it fills the sets of all ranks."""
    monkeypatch.setattr("os.sysconf", lambda name: 256)
    assert own_contributions(4, 4).nbytes == 128
    with pytest.raises(MemoryError):
        own_contributions(64, 64)
