"""Lossy schemes under DDP, on real gloo processes: conservation, restarts, and refusals."""

from __future__ import annotations

import copy

import pytest

from tests.support.ranks import RanksFailed
from tests.torch.feedback_jobs import TOP

JOBS = "tests.torch.feedback_jobs:"
RESIDUAL, SIGN = TOP + "residual", "push: dense as sign(64) pull: dense as sign(64) feedback: residual"
LOW_RANK = "project: lowrank(2) feedback: residual push: dense pull: dense"
SKETCH = "select: sketch(3, 0.3) feedback: residual push: dense pull: dense"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("entries", "options"),
    [(RESIDUAL, {}), (RESIDUAL, {"bucket_cap_mb": 0.009, "steps": 50}), (RESIDUAL, {"accumulate": True}),
     (RESIDUAL, {"static_graph": True, "gradient_as_bucket_view": True}), (RESIDUAL, {"shared": True}),
     (SIGN, {"bucket_cap_mb": 0.004}), (SKETCH, {}), (LOW_RANK, {"bucket_cap_mb": 0.009, "steps": 50})],
    ids=str,
)  # fmt: skip
def test_nothing_is_lost_and_all_ranks_agree(four, entries, options):
    results = four.run(JOBS + "conserved", entries=entries, **options)
    assert all(result == results[0] for result in results)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("entries", "cap"),
    [(LOW_RANK, 0.009), (RESIDUAL, 25), (TOP + "momentum(0.9)", 25), (SIGN, 25), (RESIDUAL, 0.009), (SIGN, 0.009)],
    ids=[
        "low rank, several buckets",
        "residual",
        "momentum",
        "sign",
        "residual, several buckets",
        "sign, several buckets",
    ],
)
def test_a_restart_goes_on_to_the_bit(two, entries, cap):
    for same, first, others in two.run(JOBS + "restarted", entries=entries, bucket_cap_mb=cap):
        assert same and all(same)
        assert len(others) == 1 if cap == 25 else len(others) > 1 and first != others, "DDP has rebuilt its buckets"


def test_another_number_of_ranks_has_the_same_sum_and_other_states_are_refused(four):
    saved = four.run(JOBS + "saved_together", entries=RESIDUAL)[0]
    for size in (1, 2):
        four.run(JOBS + "gone_on", size=size, entries=RESIDUAL, saved=copy.deepcopy(saved))
    expected = {"name": "other-model", "shape": "other-model", "cut": "bad-state", "all": "bad-state",
                "world": "other-world", "calls": "bad-state"}  # fmt: skip
    for damage, id in expected.items():
        found = four.run(JOBS + "loads", size=2, entries=RESIDUAL, saved=saved, damage=damage)
        assert found == ["different-states", id], damage


def test_factors_of_rank_two_train(two):
    found = two.run(JOBS + "trained", scheme="power_sgd", steps=50, r=2)
    assert found[0] == found[1] and found[0][1] < 0.6 * found[0][0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("scheme", "given"), [("signum", {"lr": 0.003}), ("ef21", {"density": 0.1}), ("loco", {}), ("fp8", {})]
)
def test_losses_come_near_those_of_exact_sums(two, scheme, given):
    exact, found = (
        two.run(JOBS + "trained", scheme=of, steps=300, **to) for of, to in (("dense_ring", {}), (scheme, given))
    )
    assert found[0] == found[1] and found[0][1] < 1.1 * exact[0][1] < 0.1 * exact[0][0]


@pytest.mark.parametrize("bad", [0, 2])
def test_a_scaler_is_followed_and_skipped_steps_leave_no_trace(two, bad):
    assert all(kept and min(kept) > 0 for kept in two.run(JOBS + "scaled", bad=bad))


def test_parameters_that_nobody_uses_keep_what_they_have(two):
    assert min(two.run(JOBS + "unused")) > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"entries": TOP + "momentum(0.9)", "dense": True, "momentum": 0.9}, "error[momentum-twice]"),
     ({"entries": RESIDUAL, "dense": False}, "error[needs-dense]")],
    ids=lambda of: of if isinstance(of, str) else "",
)  # fmt: skip
def test_what_can_not_be_is_refused(two, arguments, said):
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "refused", **arguments)
    assert all(said in str(error) for error in caught.value.errors.values())


def test_sparse_gradients_stay_with_ddp(two):
    assert two.run(JOBS + "beside_sparse") == [(("1.weight",), 0.0)] * 2
