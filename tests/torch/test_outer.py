"""Averagings with an outer optimizer: DiLoCo's weights, torchft's fixtures, and changes that are kept."""

from __future__ import annotations

import pytest
import torch

from tests.torch.test_averaging import model_and_optimizer, train

JOBS = "tests.torch.test_averaging:"


def diloco(steps: int, every: int, ranks: int, **outer: float | bool) -> list[list[list[torch.Tensor]]]:
    """Return the parameters of each rank after each step, by torch's own SGD as the outer optimizer: one process."""
    models = [model_and_optimizer() for _ in range(ranks)]
    whole = [each.detach().clone() for each in models[0][0].parameters()]
    optimizer = torch.optim.SGD(whole, **outer)
    found: list[list[list[torch.Tensor]]] = [[] for _ in models]
    for step in range(steps):
        for rank, (model, inner) in enumerate(models):
            train(model, inner, rank, step)
        if (step + 1) % every == 0:
            for at, each in enumerate(whole):
                each.grad = torch.stack([each - list(model.parameters())[at].detach() for model, _ in models]).mean(0)
            optimizer.step()
            for model, _ in models:
                for each, value in zip(model.parameters(), whole, strict=True):
                    each.data.copy_(value)
        for rank, (model, _) in enumerate(models):
            found[rank].append([each.detach().clone() for each in model.parameters()])
    return found


@pytest.mark.parametrize(
    ("averaging", "params", "outer"),
    [
        ("diloco", {"steps": 3}, {"lr": 0.7, "momentum": 0.9, "nesterov": True}),
        ("averaging a { alternate [everyone] when: every(3) outer: sgd(0.5) sums: balanced }", {}, {"lr": 0.5}),
        ("averaging a { alternate [everyone] when: every(3) sums: dense_ring }", {}, {"lr": 1.0}),
    ],
    ids=["nesterov", "sgd", "local"],
)
def test_weights_are_those_of_an_optimizer_of_torch_over_the_mean_change(two, averaging, params, outer):
    found = two.run(JOBS + "alone", steps=10, averaging=averaging, params=params)
    expected = diloco(10, 3, 2, **outer)
    for rank in range(2):
        for step in range(10):
            for mine, theirs in zip(found[rank][step], expected[rank][step], strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    apart = [not torch.equal(found[0][step][0], found[1][step][0]) for step in range(10)]
    assert apart == [True, True, False] * 3 + [True], "ranks are alike after each third step, bit for bit"


# Both weights before each step, in torchft's fixtures (pytorch/torchft, revision 73dafea, test_fixtures/
# torchft.diloco_regression_test.DiLoCoMockedUpdateTest.test_diloco_mocked_updates_N.json), by overlap and share kept.
FIXTURES = {
    (0, 0): "1 -1 -3 -11 -13 -15 -17 -19 -21 -35 -37 -39 -41 -43 -45 -59 / "
    "1 -1 -3 -5 -7 -9 -23 -25 -27 -29 -31 -33 -47 -49 -51 -53",
    (0, 0.5): "1 -1 -3 -8 -10 -12 -14 -16 -18 -24.5 -26.5 -28.5 -30.5 -32.5 -34.5 -40.25 / "
    "1 -1 -3 -5 -7 -9 -17 -19 -21 -23 -25 -27 -32 -34 -36 -38",
    (0, 1): "1 -1 -3 -5 -7 -9 -11 -13 -15 -17 -19 -21 -23 -25 -27 -29 / "
    "1 -1 -3 -5 -7 -9 -11 -13 -15 -17 -19 -21 -23 -25 -27 -29",
    (1, 0): "1 -1 -3 -7 -9 -11 -13 -15 -17 -27 -29 -31 -33 -35 -37 -47 / "
    "1 -1 -3 -5 -7 -9 -19 -21 -23 -25 -27 -29 -39 -41 -43 -45",
    (1, 0.5): "1 -1 -3 -6 -8 -10 -12 -14 -16 -21.5 -23.5 -25.5 -27.5 -29.5 -31.5 -35.75 / "
    "1 -1 -3 -5 -7 -9 -15 -17 -19 -21 -23 -25 -29 -31 -33 -35",
    (1, 1): "1 -1 -3 -5 -7 -9 -11 -13 -15 -17 -19 -21 -23 -25 -27 -29 / "
    "1 -1 -3 -5 -7 -9 -11 -13 -15 -17 -19 -21 -23 -25 -27 -29",
}


@pytest.mark.parametrize(("late", "keep"), FIXTURES)
def test_weights_are_those_of_torchfts_fixtures(two, late, keep):
    first, second = ([float(each) for each in half.split()] for half in FIXTURES[late, keep].split("/"))
    for found in two.run(JOBS + "mocked", keep=keep, late=late, steps=15):
        assert [list(weights) for weights in zip(*found, strict=True)] == [first, second]


@pytest.mark.parametrize("saved_at", [8, 4])
def test_a_checkpoint_goes_on_within_a_sum_and_between_two(two, saved_at):
    """After step 8 the sum of the first fragment is under way."""
    given = {"keep": 0.5, "late": 1, "steps": 15}
    assert two.run(JOBS + "mocked", saved_at=saved_at, **given) == two.run(JOBS + "mocked", **given)


@pytest.mark.parametrize(("seed", "again"), [(0, "never"), (1, "loaded"), (2, "rebuilt")])
def test_what_all_gave_is_what_was_summed_and_what_is_kept(two, seed, again):
    found = two.run(JOBS + "kept", seed=seed, averages=3, again=again)
    for at in range(2):
        before = torch.zeros_like(found[0]["given"][0][at])
        for average in range(3):
            gave = before + sum(each["given"][average][at] for each in found)
            before = sum(each["kept"][average][at] for each in found)
            torch.testing.assert_close(2 * found[0]["made"][average][at] + before, gave, rtol=0, atol=2e-5)
            assert torch.equal(found[0]["made"][average][at], found[1]["made"][average][at])
    assert bool(before.any()) and found[0]["names"] == ["a", "b"]
    assert found[0]["sent"] < 6200 * 4 / 100, "a hundredth of the bytes of float32, headers and all"


@pytest.mark.parametrize(
    ("how", "id", "said"),
    [
        ("model", "needs-model", "whose values it knows from the start"),
        ("other", "needs-model", "whose values it knows from the start"),
        ("start", "different-options", "first parameters"),
        ("state", "bad-state", "it is of other parameters"),
        ("shape", "bad-state", "the anchor of 'w' is missing, or of another shape"),
        ("words", "bad-state", "this is no state of averaging 'diloco'"),
        ("dtype", "unsupported-dtype", "torch.float64"),
    ],
)
def test_what_an_outer_optimizer_can_not_go_on_from_is_refused(two, how, id, said):
    for found in two.run(JOBS + "outer_refused", how=how):
        assert found[0] == id and said in found[1], found
