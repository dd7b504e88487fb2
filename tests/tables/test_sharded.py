"""The sharded optimizer trains bit for bit as the plain one, and holds states of owned rows alone, for any world."""

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import zenc
from tests.support.generations import lives
from tests.support.ranks import Ranks
from tests.tables.sharded_jobs import OPTIMIZERS, ROWS, WIDTH
from zenc.tables.fetched_rows import FetchedRows
from zenc.tables.owned_rows import OwnedRows, of_rows

JOBS = "tests.tables.sharded_jobs"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "scheme", "size", "width", "dtype", "steps"),
    [
        ("sparse_adam", "balanced", 4, 5, "float32", 100),
        ("sparse_adam", "agsparse", 3, 5, "float32", 20),
        ("adagrad", "kylix", 4, 5, "float32", 40),
        ("lazy_adamw", "sparse_then_dense", 3, 1, "float32", 30),
        ("lazy_adamw", "balanced", 2, 64, "bfloat16", 100),
        ("rowwise_adagrad", "sparse_ps", 3, 5, "float32", 30),
        ("rowwise_adagrad", "balanced", 4, 1, "float64", 20),
    ],
)
def test_steps_are_those_of_the_plain_optimizer(four, name, scheme, size, width, dtype, steps):
    results = four.run(f"{JOBS}:trained", size=size, name=name, scheme=scheme, steps=steps, width=width, dtype=dtype)
    for result in results:
        assert torch.equal(result["ours"], results[0]["plain"])
        assert result["same_state"] and result["lr"], "a whole state is that of the plain optimizer"
        assert set(result["held"].values()) == {len(result["rows"])}
    if scheme == "balanced":
        assert sum(len(result["rows"]) for result in results) == ROWS


@pytest.mark.parametrize(
    ("scheme", "size", "dtype"),
    [("balanced", 4, "float32"), ("agsparse", 2, "bfloat16"), ("sparse_then_dense", 3, "float32")],
)
def test_rows_on_demand_are_those_of_the_plain_optimizer(four, scheme, size, dtype):
    for result in four.run(f"{JOBS}:on_demand", size=size, scheme=scheme, dtype=dtype):
        assert result["fetched"] and result["all rows"]
        assert result["before"] is (scheme == "agsparse"), "but for a scheme whose ranks own all rows, copies are old"


def test_rows_that_a_rank_has_are_not_sent(two):
    for came in two.run(f"{JOBS}:bytes_that_come"):
        asked, answered = came[0::2], came[1::2]
        bits = -(-(100 - asked[1] // 4) // 8)
        assert asked[0] == asked[2] == answered[0] == answered[2] == 0, "it knows that it has them"
        assert 0 < asked[1] == asked[3] < 400, "the other rank's share"
        assert 0 < (answered[1] - bits) // (4 * WIDTH) < 60 and (answered[1] - bits) % (4 * WIDTH) == 0
        assert answered[3] == bits, "the owner knows that"


def test_a_rank_that_does_not_fetch():
    with Ranks(2) as ranks:
        error, seconds = ranks.run(f"{JOBS}:one_does_not_fetch", deadline=2.0)[0]
    assert error == "deadline" and seconds < 20


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_go_to_any_number_of_ranks(four, name):
    before = four.run(f"{JOBS}:saved", size=4, name=name)
    states = [[each["own"] for each in before], before[0]["whole"], [before[1]["whole"]]]
    expected = four.run(f"{JOBS}:restored", size=1, name=name, start=before[0]["table"], states=states[1:2])[0][0]
    for size in (4, 3):
        for found in four.run(f"{JOBS}:restored", size=size, name=name, start=before[0]["table"], states=states):
            assert all(torch.equal(table, expected) for table in found)


@pytest.mark.parametrize("scheme", ["balanced", "agsparse"])
def test_clipping_beside_ddp(two, scheme):
    for result in two.run(f"{JOBS}:beside_ddp", scheme=scheme):
        assert result["norms"][0] == pytest.approx(result["norms"][1], rel=1e-5)
        for ours, plain in zip(result["sharded"], result["plain"], strict=True):
            assert torch.allclose(ours, plain, rtol=1e-4, atol=1e-6)


def test_lazy_adamw_of_all_rows_is_adamw():
    ours, theirs = (torch.nn.Parameter(torch.ones(6, 3)) for _ in range(2))
    lazy, dense = zenc.LazyAdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for step in range(5):
        theirs.grad = torch.randn(6, 3, generator=torch.Generator().manual_seed(step))
        ours.grad = theirs.grad.to_sparse(1)
        lazy.step()
        dense.step()
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_rowwise_adagrad_by_hand():
    table = torch.nn.Parameter(torch.zeros(4, 2))
    optimizer = zenc.RowwiseAdagrad([table], lr=1.0, eps=0.0)
    for _ in range(2):
        table.grad = torch.sparse_coo_tensor([[1]], [[3.0, 4.0]], (4, 2))
        optimizer.step()
    first = torch.tensor([3.0, 4.0]) / 12.5**0.5
    assert torch.allclose(table[1].detach(), -first - first / 2**0.5) and not table[[0, 2, 3]].any()


class Elsewhere(TorchFunctionMode):
    """A mode in which tensors without an explicit device are on another one than existing tensors."""

    made = torch.zeros, torch.ones, torch.empty, torch.full, torch.arange

    def __torch_function__(self, function: Any, _: Any, args: Any = (), options: Any = None) -> Any:
        chosen = {"device": "meta", **(options or {})} if function in self.made else options or {}
        return function(*args, **chosen)


def stepped(optimizer: Any, options: dict[str, Any]) -> list[torch.Tensor]:
    """Return a table after steps, and its rows on demand, on a rank that owns two rows in three."""
    table = torch.nn.Parameter(torch.ones(9, 2))
    inner = optimizer([table[:0].detach()], **options)
    owned = OwnedRows(table, torch.tensor([0, 1, 3, 4, 6, 7]), torch.tensor([True] * 6))
    gradient = of_rows(torch.tensor([1, 4]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), table.shape)
    owners, ids = torch.tensor([0, 0, 1] * 3), torch.tensor([[4, 2], [5, 4]])
    with Elsewhere(), torch.no_grad():
        owned.begin(inner, inner.param_groups[0])
        fetched = FetchedRows.begin(owned, owners, 2)
        rows = [owned.update(inner, 0, gradient, all_rows) for all_rows in (True, False)]
        fetched.updated(rows[1])
        own, others = fetched.asked(ids)
        answers = [fetched.answer(1, torch.tensor([0, 1])), fetched.answer(1, torch.tensor([1]))]
        lacking = fetched.answer(0, torch.tensor([4]))
        fetched.take(torch.tensor([4]), lacking)
        states, once = owned.filled([(owned.ids, {**owned.states, **owned.once})])
        norm = torch.tensor(owned.squares(gradient))
        changes = fetched.changes(all_rows=False)
    values = [each.to_dense() for each in (*rows, changes)]
    steps = [torch.as_tensor(float(number)) for number in once.values()]
    return [*values, own, others, *answers, lacking, *states.values(), *steps, norm, table.detach()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_a_step_makes_is_where_the_table_is(name, monkeypatch):
    """A table on a GPU needs that: tensors made elsewhere could not be used with it."""
    found = stepped(*OPTIMIZERS[name])
    assert {tensor.device.type for tensor in found} == {"cpu"}
    monkeypatch.setattr(Elsewhere, "made", ())
    expected = stepped(*OPTIMIZERS[name])
    assert len(found) == len(expected) and all(map(torch.equal, found, expected))
    assert not torch.equal(found[-1], torch.ones(9, 2)), "it was trained"


def test_what_it_refuses(two):
    """Errors: optimizers with states of another kind, dense gradients, schemes without owners, other tables' states."""
    assert two.run(f"{JOBS}:refusals", size=1)[0] == {
        "adam": "unsupported-optimizer", "group": "unsupported-optimizer", "dense": "needs-sparse",
        "alone": "needs-sparse", "unfetched": "not-fetched", "no such row": "unit-out-of-range",
        "two tables": "not-fetched", "holders": "phase-not-alone", "elements": "phase-not-alone",
        "no state": "bad-state", "other groups": "bad-state", "too few rows": "bad-state", "other rows": "bad-state",
        "other states": "bad-state",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "groups", "lost"),
    [
        ("adagrad", [(0, 1), (2, 0, 3)], "checkpoint"),
        ("sparse_adam", [(0, 1, 2), (2, 0)], "checkpoint"),
        ("lazy_adamw", [(0, 1, 2), (2, 3, 0)], "untouched"),
    ],
)
def test_states_move_to_other_owners_when_a_rank_has_died(name: str, groups: list[tuple[int, ...]], lost: str) -> None:
    """A step that only some had ended counts for none; the dead rank's states come from a checkpoint, or begin anew."""
    found = lives(f"{JOBS}:over_a_death", groups, name=name, dying=1, lost=lost)
    last = [found[member]["states"][-1] for member in groups[1]]
    assert all(torch.equal(values, last[0][0]) and _same(state, last[0][1]) for values, state in last)
    assert all(found[member]["refused"] == ["lost-rows"] for member in groups[1])
    for each in (found[member] for member in groups[1] if member in groups[0]):
        _, (values, before), (begun, now), (ended, state) = each["states"]
        assert torch.equal(values, begun)
        if lost == "checkpoint":
            assert _same(before, now) and torch.equal(ended, each["plain"])
            assert _same(state, {"state": {0: each["expected"]}})
            continue
        kept, moved = before["state"][0]["exp_avg"], now["state"][0]["exp_avg"]
        other = (kept != moved).any(dim=1)
        assert 0 < other.sum() < ROWS and not moved[other].any()


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    states, others = one["state"][0], other["state"][0]
    return all(torch.equal(torch.as_tensor(states[key]), torch.as_tensor(others[key])) for key in others)
