"""States of residuals: a rank's or all ranks' go on bit for bit, and wrong ones are refused by name."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import zenc
from tests.runtime.jobs import bits, load
from tests.runtime.lossy.test_conservation import CUTS, compiled, gradients, scheme
from tests.support.local import collectives, run_all
from tests.support.ranks import Ranks, RanksFailed
from tests.support.refusals import refusals
from zenc.errors import CostError, TensorError, ZencError
from zenc.runtime.lossy.residual_store import NamedPiece, ResidualStore, pieces_of

MOMENTUM = scheme("top(0.1) by reused(4)", feedback="momentum(0.9)", more="warmup: falling(6, 0.5)")


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """Write and read a state as ``torch.save`` does, without unpickling objects."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    found: dict[str, Any] = torch.load(file, weights_only=True)
    return found


@pytest.mark.parametrize("text", [scheme("top(0.1)"), MOMENTUM, scheme("random_each(0.2)")])
def test_a_run_that_goes_on_from_its_own_states_has_the_same_bits(text: str) -> None:
    names = [("a", 30), ("b", (2, 5))]
    first = collectives(compiled(text, 3), 3)
    for step in range(5):
        run_all(first, gradients(3, 40, step), name=names)
    second = collectives(compiled(text, 3), 3)
    for rank, before in zip(second, first, strict=True):
        rank.load_state_dict(through_a_file(before.state_dict()))
    for step in range(5, 9):
        found, expected = (run_all(ranks, gradients(3, 40, step), name=names) for ranks in (second, first))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert str(first[1].state_dict()) == str(second[1].state_dict())


def together(group: dist.ProcessGroup) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
    """Return two calls, the state of all ranks, and its rest after it was loaded."""
    collective = load(group, scheme("top(0.1)"), ranks=group.size())
    for step in range(2):
        collective.all_reduce(gradients(group.size(), 40, step)[group.rank()], name="w")
    state, own = collective.state_dict(together=True), collective.residual("w")
    other = load(group, scheme("top(0.1)"), ranks=group.size())
    other.load_state_dict(state)
    return state, own, other.residual("w")


def test_ranks_sum_what_they_keep_and_share_it(four: Ranks) -> None:
    found = four.run(f"{__name__}:together")
    total = sum(own for _, own, _ in found)
    for state, _, shared in found:
        assert torch.equal(state["tensors"]["w"]["residual"], total.view(-1))
        assert torch.equal(shared, total / 4)
    alone = collectives(compiled(scheme("top(0.1)"), 1), 1)
    alone[0].load_state_dict(found[0][0])
    assert torch.equal(alone[0].all_reduce(torch.zeros(40), name="w"), total)


def other_name(group: dist.ProcessGroup, what: str) -> None:
    collective = load(group, scheme("top(0.1)"), 5.0, ranks=group.size())
    collective.all_reduce(torch.ones(40), name="w")
    if what == "steps" and group.rank() == 1:
        state = collective.state_dict()
        state["tensors"]["w"]["step"] = 7
        collective.load_state_dict(state)
    if what == "together":
        collective.all_reduce(torch.ones(40), name="v")
        state = collective.state_dict()
        del state["tensors"]["v" if group.rank() else "w"]
        other = load(group, scheme("top(0.1)"), 5.0, ranks=group.size())
        other.load_state_dict(state)
        other.state_dict(together=True)
    collective.all_reduce(torch.ones(40), name="v" if what == "name" and group.rank() else "w")


@pytest.mark.parametrize("what", ["name", "steps", "together"])
def test_a_rank_with_another_name_or_count_is_found_out(two: Ranks, what: str) -> None:
    with pytest.raises(RanksFailed) as failed:
        two.run(f"{__name__}:other_name", what=what)
    ids = {error.diagnostics[0].id for error in failed.value.errors.values() if isinstance(error, ZencError)}
    assert "different-calls" in ids
    two.whole = False  # its communicators are broken


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def edit(state: dict[str, Any]) -> dict[str, Any]:
        change(state)
        return state

    return edit


HALF = torch.zeros(40, dtype=torch.float16)
BAD_STATES: dict[str, tuple[type[ZencError], str, Callable[[dict[str, Any]], Any]]] = {
    "no dict": (CostError, "bad-state", lambda state: [1]),
    "nothing": (CostError, "bad-state", lambda state: {}),
    "version": (CostError, "other-version", edited(lambda state: state.update(zenc_residuals=2))),
    "cut": (CostError, "bad-state", edited(lambda state: state.pop("tensors"))),
    "no rank": (CostError, "bad-state", edited(lambda state: state.pop("rank"))),
    "feedback": (CostError, "bad-state", edited(lambda state: state.update(feedback="residual velocity"))),
    "no step": (CostError, "bad-state", edited(lambda state: state["tensors"]["w"].pop("step"))),
    "shape": (CostError, "bad-state", edited(lambda state: state["tensors"]["w"].update(shape=[-4, 10]))),
    "elements": (CostError, "bad-state", edited(lambda state: state["tensors"]["w"].update(shape=[41]))),
    "half": (CostError, "bad-state", edited(lambda state: state["tensors"]["w"].update(residual=HALF))),
    "no residual": (CostError, "bad-state", edited(lambda state: state["tensors"]["w"].update(residual=None))),
    "threshold": (CostError, "bad-state", edited(lambda state: state["tensors"]["w"].update(threshold=[1]))),
    "ranks": (TensorError, "other-world", edited(lambda state: state.update(ranks=3))),
    "rank": (TensorError, "other-world", edited(lambda state: state.update(rank=1))),
    "other name": (TensorError, "other-model", edited(lambda s: s.update(tensors={"v": s["tensors"]["w"]}))),
    "other shape": (TensorError, "other-model", edited(lambda state: state["tensors"]["w"].update(shape=[4, 10]))),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_STATES)
def test_what_is_no_state_of_this_rank_is_refused_and_nothing_changes(what: str) -> None:
    error, id, change = BAD_STATES[what]
    ranks = collectives(compiled(scheme("top(0.1)"), 2), 2)
    run_all(ranks, gradients(2, 40, 0), name="w")
    kept = ranks[0].residual("w")
    with pytest.raises(error, match=rf"error\[{id}\]"):
        ranks[0].load_state_dict(change(ranks[0].state_dict()))
    assert torch.equal(ranks[0].residual("w"), kept)


BAD_CALLS: dict[str, tuple[str, Callable[[zenc.Collective], Any]]] = {
    "no name": ("needs-name", lambda collective: collective.all_reduce(torch.ones(4))),
    "float64": ("unsupported-dtype", lambda collective: collective.all_reduce(torch.ones(4).double(), name="w")),
    "sparse": ("unsupported-layout", lambda collective: collective.all_reduce(torch.ones(4).to_sparse(), name="w")),
    "shape": ("other-model", lambda collective: collective.all_reduce(torch.ones(2, 2), name="w")),
    "unknown": ("other-model", lambda collective: collective.all_reduce(torch.ones(4), name="v")),
    "pieces": ("wrong-pieces", lambda collective: collective.all_reduce(torch.ones(4), name=[("w", 3)])),
    "twice": ("wrong-pieces", lambda collective: collective.all_reduce(torch.ones(8), name=[("w", 4), ("w", 4)])),
    "no piece": ("wrong-pieces", lambda collective: collective.all_reduce(torch.ones(0), name=[])),
    "no residual": ("no-residual", lambda collective: collective.residual("v")),
    "graph": ("not-capturable", lambda collective: collective.capturable(torch.ones(4))),
}


@pytest.mark.parametrize("what", BAD_CALLS)
def test_bad_calls_are_refused_before_anything_is_sent(what: str) -> None:
    id, call = BAD_CALLS[what]
    (alone,) = collectives(compiled(scheme("top(0.5)"), 1), 1)
    alone.load_state_dict(
        {"zenc_residuals": 1, "feedback": "residual", "ranks": 1, "rank": 0,
         "tensors": {"w": {"shape": [4], "step": 3, "threshold": None, "residual": torch.ones(4)}}}
    )  # fmt: skip
    with pytest.raises(TensorError, match=rf"error\[{id}\]"):
        call(alone)
    assert torch.equal(alone.all_reduce(torch.ones(4), name="w"), torch.full((4,), 2.0))


def test_schemes_that_lose_nothing_keep_nothing() -> None:
    (alone,) = collectives(zenc.compile("balanced", ranks=1), 1)
    alone.all_reduce(torch.ones(4), name=[("a", 1), ("b", 3)])
    assert alone.state_dict() == {}
    with pytest.raises(TensorError, match="keeps nothing under the name 'a'"):
        alone.residual("a")


def in_flight(group: dist.ProcessGroup, schemes: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Make two asynchronous calls of two names a scheme; return fingerprints of the sums and residuals."""
    found = []
    for name in schemes:
        collective = zenc.load(zenc.compile(name, ranks=group.size()), group, deadline=60.0)
        works = []
        for step in range(2):
            given = [gradients(group.size(), 3000, step + at)[group.rank()] for at in range(2)]
            works += [
                collective.all_reduce(each, "mean", async_op=True, name=called)
                for each, called in zip(given, ("w", [("a", 1000), ("b", (20, 100))]), strict=True)
            ]
        sums = bits(torch.cat([work.wait() for work in works]))
        found.append((sums, dict(works[-1].stats["loss"])))
    return found


def test_real_ranks_hold_the_same_bits(four: Ranks) -> None:
    schemes = ["oscar_hw", "oscar_sw", "one_bit", "topk_a2a", "ok_topk", "dgc"]
    found = four.run(f"{__name__}:in_flight", schemes=schemes)
    for place, name in enumerate(schemes):
        assert len({of_rank[place][0] for of_rank in found}) == 1, name
        lossless = name == "oscar_hw"  # for which small integers are what it has 8 bits for
        assert all((of_rank[place][1]["residual_norm"] == 0) == lossless for of_rank in found), name


def refused(group: dist.ProcessGroup) -> list[str]:
    """Return the ids of the errors of zenc.load."""
    found = []
    lossy, other = scheme("top(0.1)"), scheme("top(0.1)", CUTS[1]).replace("scheme lossy", "scheme other")
    sums = scheme("top(0.1)", more="reselect: top(0.1)")
    choice = f"scheme chosen {{ choose from [lossy, other] }} {lossy} {other}"
    for text, options in ((sums, {"capacity": 0.5}), (choice, {})):
        artifact = zenc.compile_text(text, ranks=group.size(), scheme="chosen" if "chosen" in text else None)
        found.append(refusals(ZencError, zenc.load, artifact, group, deadline=20.0, **options)[0].id)
    return found


def test_loading_refuses_what_would_lose_silently(two: Ranks) -> None:
    assert two.run(f"{__name__}:refused") == [["no-capacity-mode", "no-compression"]] * 2


def test_what_an_undone_call_goes_back_to_is_scaled_too():
    store, pieces, device = ResidualStore(), pieces_of("w", torch.zeros(4)), torch.device("cpu")
    state = store.state_of(pieces, device)
    for kept in (2.0, 6.0):
        state.room("residual").fill_(kept)
        state.commit()
        store.count(pieces)
    store.scale(0.5)
    assert state.now.residual.tolist() == [3.0] * 4
    store.undo(["w"])
    assert store.entries["w"].vectors.residual.tolist() == [1.0] * 4


def test_cuts_and_thresholds_stay_with_the_tensor_that_they_are_of():
    """DDP rebuilds its buckets: the second piece of one is alone, and the first is first again."""
    store, device = ResidualStore(), torch.device("cpu")
    first, second = NamedPiece("first", (100,)), NamedPiece("second", (10,))
    both = store.state_of((first, second), device)
    both.ends, both.threshold = (50, 110), (7, 1)
    alone = store.state_of((second,), device)
    assert (alone.ends, alone.threshold) == ((), None)
    again = store.state_of((first,), device)
    assert (again.ends, again.threshold) == ((50, 110), (7, 1))
