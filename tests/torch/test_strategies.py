"""Strategies under DDP, on real gloo processes: rules, groups, searches, choices, states, and refusals."""

from __future__ import annotations

import pytest
import torch

from tests.support.ranks import RanksFailed
from tests.torch.strategy_jobs import EACH
from zenc.errors import TensorError
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile
from zenc.torch.profiled_model import ensure_same

JOBS = "tests.torch.strategy_jobs:"
NAMES = tuple(f"{layer}.{kind}" for layer in ("first", "second", "last") for kind in ("weight", "bias"))
RULES = 'tensors "last.*": dense_ring on host tensors above 1 kB: topped others: dense_ring'
PARAMETERS = tuple(ParameterProfile(name, (48,), "f32", "dense", 1.0) for name in NAMES)
OTHER = ModelProfile(2, "gloo", "cpu", 9, 0.01, 0.004, 0.002, PARAMETERS)
"""The profile of a model with other shapes."""


@pytest.mark.parametrize("scheme", ["topped", "signed"])
def test_one_rule_is_its_scheme_to_the_bit(two, tmp_path, scheme):
    for strategy, directory, alone in two.run(JOBS + "one_rule", path=str(tmp_path), scheme=scheme):
        assert strategy == directory == alone


@pytest.mark.parametrize(
    ("groups", "options", "calls"),
    [("", {}, 3), ("groups: cuts(2, 3)", {"bucket_cap_mb": EACH}, 4), ("groups: cuts(3)", {}, 3),
     ("groups: fused(10 kB)", {"bucket_cap_mb": EACH}, 5), ("", {"find_unused_parameters": True}, 3)],
    ids=str,
)  # fmt: skip
def test_each_gradient_goes_by_its_rule_and_nothing_is_lost(two, tmp_path, groups, options, calls):
    results = two.run(JOBS + "conserved", path=str(tmp_path), rules=f"{groups} {RULES}", **options)
    here, other = results
    assert here["bits"] == other["bits"] and here["calls"].keys() == other["calls"].keys()
    last, large, others = 'tensors "last.*" on host', "tensors above 1 kB", "others"
    expected = (large, others, large, others, last, last)
    assert here["rules"] == dict(zip(NAMES, expected, strict=True))
    assert here["kept"] == [rule == large for rule in expected]
    assert len(here["calls"]) == calls, here["calls"]
    assert {(rule, scheme) for rule, scheme, _ in here["calls"].values()} == {
        (last, "dense_ring"), (large, "topped"), (others, "dense_ring")
    }  # fmt: skip
    assert sum(units for _, _, units in here["calls"].values()) == 2 * (48 * 48 + 48) + 48 * 4 + 4


@pytest.mark.parametrize(("groups", "most"), [("search(2)", 2), ("fused", 6)])
def test_groups_are_searched_on_measured_steps(two, tmp_path, groups, most):
    (here, bits, calls), (other, other_bits, _) = two.run(JOBS + "searched", path=str(tmp_path), groups=groups)
    found, known = here
    assert here == other and bits == other_bits
    assert () in known and len(known) > 1 and found.seconds == min(known.values()) == known[found.ends]
    assert calls == len(found.ends) + 1 <= most


def test_a_choice_for_each_tensor_is_the_same_on_all_ranks_and_loses_nothing(two, tmp_path):
    """A candidate's residuals are in the next call of another candidate."""
    rules = "tensors above 1 kB: choose(every = 2, trials = 1) from [dense_ring, topped, signed] others: dense_ring"
    here, other = two.run(JOBS + "conserved", path=str(tmp_path), rules=rules, steps=9)
    assert here["decisions"] == other["decisions"] and len(here["decisions"]) >= 2
    assert here["bits"] == other["bits"]
    assert {"first.weight", "second.weight"} < here["calls"].keys(), "each in a call of its own"
    assert here["ways"] == other["ways"]


@pytest.mark.parametrize("together", [False, True])
def test_what_is_kept_follows_the_names_of_tensors(two, tmp_path, together):
    after = 'tensors "second.*": dense_ring others: signed'
    before = 'tensors "second.*": dense_ring tensors above 1 kB: topped others: signed'
    run = {"before": before, "after": after, "together": together}
    for kept, found in two.run(JOBS + "restarted", path=str(tmp_path), **run):
        assert [bool(each.any()) for each in kept] == [True, True, False, False, True, True]
        for one, other in zip(kept, found, strict=True):
            torch.testing.assert_close(one, other)
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "restarted", path=str(tmp_path), **{**run, "after": "others: dense_ring"})
    assert all("error[other-model]" in str(error) for error in caught.value.errors.values())


@pytest.mark.parametrize(
    ("rules", "off", "said"),
    [('tensors "0.*": balanced others: dense_ring', 0.0, ""),
     ('tensors "0.*": topped tensors "9.*": balanced others: dense_ring', 0.0, "stay with DDP"),
     ("groups: cuts(1) others: dense_ring", 0.0, ""),
     ("groups: cuts(2) others: dense_ring", 0.0, "warning[coarse-buckets] no bucket of DDP ends before tensor 2")],
)  # fmt: skip
def test_sparse_gradients_go_by_rules_too(two, tmp_path, rules, off, said):
    results = two.run(JOBS + "beside_tables", path=str(tmp_path), rules=rules)
    for of, distance, _ in results:
        assert distance <= 1e-6 + off
        assert ("0.weight" in of) == ("topped" not in rules)
    assert any(said in line for line in [*results[0][2], ""])
    assert any("no-such-tensor" in line for line in results[0][2]) == ("9.*" in rules)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"rules": "others: dense_ring on gpu"}, "error[device-not-there]"),
     ({"rules": "groups: cuts(2, 6) others: dense_ring"}, "error[cuts-out-of-range]"),
     ({"rules": 'tensors "first.*": topped tensors "first.*": signed others: dense_ring'}, "error[duplicate-rule]"),
     ({"rules": "others: dense_ring", "exclude": ["*"]}, "error[no-such-tensor]"),
     ({"rules": "others: dense_ring", "model": OTHER}, "error[other-model]"),
     ({"rules": "others: dense_ring", "twice": True}, "error[hook-taken]")],
    ids=lambda of: of if isinstance(of, str) else "",
)  # fmt: skip
def test_what_can_not_be_is_refused(two, tmp_path, arguments, said):
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "refused", path=str(tmp_path), **arguments)
    assert all(said in str(error) for error in caught.value.errors.values())


def test_a_profile_of_another_model_is_told_by_its_first_differences():
    here = {"a": (2, 3), "b": (4,), "c": (5,), "d": (6,)}
    ensure_same(here, dict(reversed(here.items())))
    with pytest.raises(TensorError) as caught:
        ensure_same(here, {"a": (3, 2), "c": (5,), "x": (1,), "y": (1,)})
    (told,) = caught.value.diagnostics
    assert told.id == "other-model" and "it has 4 parameters, and this model 4 parameters to train" in told.message
    assert told.notes == (
        "'a' has the shape [2, 3], and [3, 2] in the profile",
        "'b' of the shape [4] is not in the profile",
        "'d' of the shape [6] is not in the profile",
        "and 2 other differences",
    )
