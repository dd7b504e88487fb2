"""The times at which a choice is made and changed, on made-up regimes with calls of known times."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zenc.scheme.model import Settings
from zenc.select.online import Model, Records, Selector, Speeds, fit_speeds

NAMES = ("balanced", "holders", "sparcml", "dense_ring")
Truth = Callable[[float, int], float]
"""The seconds that a candidate takes at a density."""


def models(density: float) -> list[Model]:
    """Return models that assume fast links: three sparse schemes, and a dense one."""
    sparse = [Model(1e-4, 0.1 * density), Model(3e-4, 0.09 * density), Model(5e-5, 0.2 * density)]
    return [*sparse, Model(6e-4, 0.05)]


def truth(fixed: float, transfer: float, wrong: Sequence[float] = (1, 1, 1, 1)) -> Truth:
    def taken(density: float, candidate: int) -> float:
        return Speeds(fixed, transfer).seconds(models(density)[candidate]) * wrong[candidate]

    return taken


def played(of: Selector, densities: Sequence[float], taken: Truth) -> list[int]:
    """Return the candidate that each call ran."""
    ran = []
    for density in densities:
        if of.looks:
            of.look(models(density))
        timed, candidate = of.timed, of.current
        of.begun()
        ran.append(candidate)
        if timed:
            of.ended(taken(density, candidate))
    return ran


def fresh(**settings: float) -> Selector:
    return Selector("t", Settings(**settings), NAMES, Records())  # type: ignore[arg-type]


def test_a_choice_goes_on_from_its_state_without_trials() -> None:
    of, taken = fresh(every=5), truth(2.0, 10)
    ran = played(of, [0.01] * 60, taken)
    again = fresh(every=5)
    assert again.restore(of.state() or {}) and not again.trying
    assert set(played(again, [0.01] * 20, taken)) == {ran[-1]} and len(again.decisions) == 1


@pytest.mark.parametrize("slower", [0.5, 1, 10, 100, 1000])
@pytest.mark.parametrize("density", [0.0001, 0.003, 0.1, 1.0])
def test_the_quickest_is_found_whatever_the_links(slower: float, density: float) -> None:
    taken = truth(2.0, slower)
    of = fresh(every=5)
    ran = played(of, [density] * 60, taken)
    best = min(range(4), key=lambda c: taken(density, c))
    assert taken(density, ran[-1]) <= taken(density, best) * 1.0001
    assert len(of.decisions) == 1
    assert ran[0] == 0, "the first candidate runs before anything is known"


def test_models_may_be_wrong() -> None:
    """Models are wrong by up to a factor of two against each other, on links and ranks of any speed."""
    random = Random(1)
    for _ in range(1000):
        wrong = [random.uniform(0.7, 1.4) for _ in NAMES]
        taken = truth(10 ** random.uniform(-1, 1), 10 ** random.uniform(-1, 3), wrong)
        density = 10 ** random.uniform(-5, 0)
        of = fresh(every=5)
        ran = played(of, [density] * 40, taken)
        assert taken(density, ran[-1]) <= 1.0001 * min(taken(density, c) for c in range(4))
        assert len(of.decisions) == 1


@pytest.mark.parametrize("trials", [0, 1, 3])
def test_one_switch_for_each_change_of_regime(trials: int) -> None:
    """Densities go from 0.1 % to 60 % and back: the dense scheme takes over and gives way again, once each."""
    of = fresh(every=10, trials=trials)
    taken = truth(1.0, 5.0)
    regimes = [0.001] * 200 + [0.6] * 200 + [0.001] * 200
    ran = played(of, regimes, taken)
    assert [decision.scheme for decision in of.decisions] == ["balanced", "dense_ring", "balanced"]
    assert [decision.instead_of for decision in of.decisions] == ["", "balanced", "dense_ring"]
    assert ran[150:200] == [0] * 50
    assert ran[350:400] == [3] * 50
    assert ran[550:] == [0] * 50
    assert 200 < of.decisions[1].call <= 200 + 10 * 2 + 4 * trials + 1


def test_what_comes_and_goes_changes_nothing() -> None:
    """A density that is high at every other look is no regime."""
    of = fresh(every=10, trials=1)
    densities = [0.001] * 100 + ([0.6] * 10 + [0.001] * 10) * 20
    played(of, densities, truth(1.0, 5.0))
    assert [decision.scheme for decision in of.decisions] == ["balanced"]


@pytest.mark.parametrize(("margin", "schemes"), [(0.05, ["balanced", "holders"]), (0.3, ["balanced"])])
def test_what_is_better_by_less_than_the_margin_changes_nothing(margin: float, schemes: list[str]) -> None:
    """The best scheme takes a tenth less than the first at a density of 0.55."""
    of = fresh(every=5, trials=0, margin=margin)
    played(of, [0.01] * 20 + [0.55] * 100, truth(1.0, 1.0))
    assert [decision.scheme for decision in of.decisions] == schemes


def test_a_trial_that_disproves_the_model_is_no_switch() -> None:
    of = fresh(every=5, trials=2)
    taken = truth(1.0, 5.0, (1, 1, 1, 9))
    ran = played(of, [0.001] * 50 + [0.6] * 150, taken)
    assert "dense_ring" not in [decision.scheme for decision in of.decisions]
    assert ran.count(3) == 1, "one trial, which took far longer, and no more of them later"


@pytest.mark.parametrize("slower", [100.0, 0.01])
def test_a_network_of_another_speed_is_noticed(slower: float) -> None:
    """Gradients stay the same; where links become slower bytes decide, where they become faster the steps do."""
    of = fresh(every=10)
    before, after = truth(1.0, 3.0 / slower**0.5), truth(1.0, 3.0 * slower**0.5)
    best = [min(range(4), key=lambda c: taken(0.01, c)) for taken in (before, after)]
    assert best[0] != best[1]
    ran = played(of, [0.01] * 100, before) + played(of, [0.01] * 200, after)
    assert ran[80:100] == [best[0]] * 20 and ran[200:] == [best[1]] * 100
    assert [decision.scheme for decision in of.decisions] == [NAMES[each] for each in best]
    assert of.decisions[1].call <= 100 + 10 * 2 + 3 * 4 + 1


def test_calls_that_take_long_now_and_then_are_no_other_network() -> None:
    of = fresh(every=10)
    steady = truth(1.0, 5.0)
    calls = [0]

    def disturbed(density: float, candidate: int) -> float:
        calls[0] += 1
        return steady(density, candidate) * (5 if calls[0] % 2 else 1)

    played(of, [0.01] * 50, steady)
    ran = played(of, [0.01] * 400, disturbed)
    assert len(of.decisions) == 1 and set(ran) == {of.current}


def test_as_many_surprises_as_asked_begin_trials_anew() -> None:
    """The count starts at the decision, and stays the same later."""
    of, steady = fresh(every=1, patience=3), truth(1.0, 5.0)
    while not of.decisions:
        played(of, [0.01], steady)
    for surprises in range(1, 4):
        played(of, [0.01], lambda density, candidate: 100 * steady(density, candidate))
        assert bool(of.records.found) == (surprises < 3)


def test_a_decision_says_why() -> None:
    of = fresh(every=5, trials=2)
    played(of, [0.001] * 50, truth(1.0, 5.0))
    (decision,) = of.decisions
    assert set(decision.predicted) == set(NAMES)
    assert decision.measured["balanced"] == pytest.approx(truth(1.0, 5.0)(0.001, 0))
    assert decision.afterwards == pytest.approx(decision.measured[decision.scheme])
    assert f"{decision.scheme} sums t from call {decision.call} on: took" in str(decision)
    assert decision.to_json()["scheme"] == decision.scheme


def test_what_comes_after_a_decision_is_told_once() -> None:
    of = fresh(every=5, trials=0)
    of.look(models(0.001))
    of.begun()
    assert of.ended(2e-3) == "balanced takes 2 ms for t, expected 0.2 ms"
    assert of.decisions[0].afterwards == 2e-3
    of.look(None)
    assert of.ended(3e-3) == ""
    assert of.decisions[0].afterwards == 3e-3


def test_looks_are_as_often_as_asked() -> None:
    of = fresh(every=7, trials=0)
    looked = []
    for call in range(30):
        if of.looks:
            looked.append(call)
            of.look(models(0.001))
        of.begun()
        if of.timed:
            of.ended(1e-3)
    assert looked == [0, 7, 14, 21, 28]


@given(st.floats(0.05, 10), st.floats(0.05, 2000))
def test_speeds_are_learned_from_calls(fixed: float, transfer: float) -> None:
    made = [Model(1e-3, 1e-3), Model(1e-4, 5e-3), Model(2e-3, 1e-4)]
    found = fit_speeds([(model, Speeds(fixed, transfer).seconds(model)) for model in made])
    for model in made:
        assert found.seconds(model) == pytest.approx(Speeds(fixed, transfer).seconds(model), rel=0.2)


def test_one_call_tells_of_links_rather_than_of_ranks() -> None:
    assert fit_speeds([(Model(1e-3, 1e-3), 0.101)]).transfer == pytest.approx(100, rel=0.2)
    assert fit_speeds([(Model(1e-3, 1e-3), 0.5e-3)]).seconds(Model(1e-3, 1e-3)) == pytest.approx(0.5e-3, rel=0.2)
    assert fit_speeds([]) == Speeds()
    assert fit_speeds([(Model(1e-3, 0.0), 2e-3)]).fixed == pytest.approx(2.0, rel=0.05)


def test_a_slow_call_of_a_small_tensor_says_little_of_links() -> None:
    """12 ms for 64 numbers mean slow ranks or switches: links would have to be a million times slower than usual."""
    found = fit_speeds([(Model(3e-4, 2e-8), 12e-3)])
    assert found.fixed > 10
    assert found.transfer < 1000


def test_trials_that_find_less_than_the_margin_keep_what_was_chosen() -> None:
    settings = Settings(margin=0.2, patience=1, trials=1, every=1)
    found = Selector("t", settings, ["one", "other"], Records())
    found.look([Model(1.0, 0.0), Model(1.0, 0.0)])

    def tried(seconds: Sequence[float]) -> int:
        for _ in range(6):
            if found.trying:
                found.begun()
                found.ended(seconds[found.current])
        return found.current

    assert tried([1.0, 1.5]) == 0
    found._begin_trials()
    assert tried([1.0, 0.9]) == 0
    found._begin_trials()
    assert tried([1.0, 0.7]) == 1


@pytest.mark.parametrize("trials", [0, 2])
def test_what_other_ranks_have_chosen_is_chosen_anew(trials: int) -> None:
    """The first call runs the old scheme; calls then take as long as here, which is what the new choice expects."""
    few, many = truth(1.0, 1.0), truth(40.0, 0.02)
    before = fresh(every=5, trials=trials)
    played(before, [0.5] * 40, few)
    state = before.state()
    assert state is not None
    of = fresh(every=5, trials=trials)
    assert of.follow(state)
    ran = played(of, [0.5] * 30, many)
    assert NAMES[ran[0]] == before.decisions[-1].scheme or not trials
    new = of.decisions[len(before.decisions)]
    assert new.call <= state["calls"] + 1 + 4 * max(1, trials)
    if trials:
        assert many(0.5, ran[-1]) == min(many(0.5, candidate) for candidate in range(4))
        assert new.measured[new.scheme] == new.afterwards == many(0.5, ran[-1])
    assert of.state() is not None
