"""Strategies under DDP, on real gloo processes: rules, groups, searches, choices, states, and refusals."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits
from tests.support.ranks import RanksFailed
from tests.support.refusals import refusals
from tests.torch.test_dense import attached, backward, wrapped
from tests.torch.test_feedback import assert_conserved, local
from zenc.errors import TensorError
from zenc.kinds import open as open_text
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile
from zenc.torch.handle import Attachment
from zenc.torch.profiled_model import ensure_same
from zenc.torch.strategy import grouping as groupings

SCHEDULE = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"
TEXT = f"""
scheme topped {{ {SCHEDULE} select: top_of_parts(0.1) push: coo pull: dense feedback: residual }}
scheme signed {{ {SCHEDULE} push: dense as sign(64) pull: dense as sign(64) feedback: residual }}
strategy tried {{ %s }}
"""
EACH = 1e-6
"""``bucket_cap_mb`` that gives each gradient a bucket of its own."""


def strategy(path: str, group: dist.ProcessGroup, rules: str) -> str:
    """Write a file with a strategy, one for each rank."""
    file = Path(path) / f"rank{group.rank()}.zen"
    file.write_text(TEXT % rules)
    return str(file)


def residuals(handle: Attachment, ddp: DistributedDataParallel) -> list[torch.Tensor]:
    """Return this rank's residuals of all parameters, float64; zeros where nothing is kept."""
    found = []
    for name, parameter in ddp.module.named_parameters():
        try:
            found.append(handle.residual(name).double())
        except zenc.TensorError:
            found.append(torch.zeros_like(parameter, dtype=torch.float64))
    return found


def one_rule(group: dist.ProcessGroup, path: str, scheme: str, **options: Any) -> list[list[str]]:
    """Return fingerprints of parameters trained by a one-rule strategy, text and compiled, and by its scheme."""
    found = []
    text = strategy(path, group, f"others: {scheme}")
    directory = open_text(text).compile().save(Path(path) / f"rank{group.rank()}")[scheme].parent
    alone = zenc.compile_text(TEXT.partition("strategy")[0], scheme=scheme)
    for what in (text, str(directory), alone):
        ddp = wrapped(group, **options)
        attached(ddp, what, what is alone, least_values=1)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
        for step in range(4):
            optimizer.zero_grad()
            backward(ddp, group.rank(), step)
            optimizer.step()
        found.append([bits(parameter) for parameter in ddp.parameters()])
    return found


def conserved(group: dist.ProcessGroup, path: str, rules: str, steps: int = 5, **options: Any) -> dict[str, Any]:
    """Check that steps in which DDP rebuilds its buckets lose nothing; return the kind of each call, by its name."""
    ddp = wrapped(group, **options)
    handle = attached(ddp, strategy(path, group, rules), False)
    gave = [torch.zeros_like(p, dtype=torch.float64) for p in ddp.parameters()]
    got = [torch.zeros_like(total) for total in gave]
    ways = set()
    for step in range(steps):
        ddp.zero_grad()
        gave = [total + own for total, own in zip(gave, local(ddp, group.rank(), step), strict=True)]
        backward(ddp, group.rank(), step)
        got = [total + p.grad for total, p in zip(got, ddp.parameters(), strict=True)]
        ways |= {(name, stats["scheme"]) for name, stats in handle.stats.items()}
    assert_conserved(group, gave, got, residuals(handle, ddp))
    return {
        "ways": ways,
        "calls": {name: (stats["rule"], stats["scheme"], stats["units"]) for name, stats in handle.stats.items()},
        "rules": handle.rules,
        "kept": [bool(each.any()) for each in residuals(handle, ddp)],
        "bits": [bits(p.grad) for p in ddp.parameters()],
        "decisions": [str(each.scheme) for each in handle.decisions],
    }


def searched(group: dist.ProcessGroup, path: str, groups: str) -> tuple[Any, list[str], int]:
    """Run a search on measured steps: return its result, gradients of the last step, and the number of calls."""
    groupings.WARM_UP, groupings.MEASURED = 1, 2
    ddp = wrapped(group, bucket_cap_mb=EACH)
    handle = attached(ddp, strategy(path, group, f"groups: {groups} others: dense_ring"), False)
    grouping: Any = handle.state.plan.grouping
    step = 0
    while grouping.found is None and step < 200:
        backward(ddp, group.rank(), step % 7)
        step += 1
    ddp.zero_grad()
    before = sum(totals.calls for totals in handle.state.log.totals.values())
    backward(ddp, group.rank(), 0)
    after = sum(totals.calls for totals in handle.state.log.totals.values())
    again = attached(
        wrapped(group, bucket_cap_mb=EACH), strategy(path, group, f"groups: {groups} others: dense_ring"), False
    )
    again.load_state_dict(handle.state_dict())
    assert again.state.plan.grouping._restored["known"] == handle.state_dict()["groups"]["known"]
    return (grouping.found, grouping.known), [bits(p.grad) for p in ddp.parameters()], after - before


def restarted(group: dist.ProcessGroup, path: str, before: str, after: str, together: bool) -> list[list[torch.Tensor]]:
    """Return residuals at the end of a run, and at the start of another with other rules, as sums over the ranks."""
    ddp = wrapped(group)
    first = attached(ddp, strategy(path, group, before), False)
    for step in range(3):
        backward(ddp, group.rank(), step)
    state = first.state_dict(together)
    found = [residuals(first, ddp)]
    ddp = wrapped(group)
    second = attached(ddp, strategy(path, group, after), False)
    second.load_state_dict(state)
    found.append(residuals(second, ddp))
    for kept in found:
        for each in kept:
            dist.all_reduce(each, group=group)
    backward(ddp, group.rank(), 3)
    return found


def beside_tables(group: dist.ProcessGroup, path: str, rules: str) -> tuple[dict[str, str], float, list[str]]:
    """Train tables by rules; return the rules, the distance of all gradients from the average, and the log."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(50, 48, sparse=True), nn.Linear(48, 48))
    ddp, logged = DistributedDataParallel(model, process_group=group), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("zenc").addHandler(handler)
    try:
        handle = attached(ddp, strategy(path, group, rules), False)
        ids = torch.full((2, 3), group.rank())
        own = [g.to_dense() for g in torch.autograd.grad(model(ids).sum(), list(model.parameters()))]
        for _ in range(6):
            ddp.zero_grad()
            ddp(ids).sum().backward()
    finally:
        logging.getLogger("zenc").removeHandler(handler)
    for each in own:
        dist.all_reduce(each, group=group)
    both = zip(model.parameters(), own, strict=True)
    return handle.rules, max(float((p.grad.to_dense() - e / group.size()).abs().max()) for p, e in both), logged


def refused(group: dist.ProcessGroup, path: str, rules: str, twice: bool = False, **options: Any) -> None:
    ddp = wrapped(group)
    for _ in range(2 if twice else 1):
        attached(ddp, strategy(path, group, rules), False, **options)


JOBS = "tests.torch.test_strategies:"
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
    (told,) = refusals(TensorError, ensure_same, here, {"a": (3, 2), "c": (5,), "x": (1,), "y": (1,)})
    assert told.id == "other-model" and "it has 4 parameters, and this model 4 parameters to train" in told.message
    assert told.notes == (
        "'a' has the shape [2, 3], and [3, 2] in the profile",
        "'b' of the shape [4] is not in the profile",
        "'d' of the shape [6] is not in the profile",
        "and 2 other differences",
    )
