"""``benchmarks.lab.steps``: the tuner and the ten use the same schemes, goals are computed, the page is its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.convergence.characters import SIZES, new_model
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.results import Row, Spread
from benchmarks.lab.settings import ROOT, Run
from benchmarks.lab.steps import suite
from benchmarks.lab.steps.settings import ALLOWED, BY_DDP, HAND_WRITTEN
from benchmarks.lab.steps.suite import FOLDER, PAGE, POINTS, tuned_file, with_tables
from benchmarks.lab.steps.tuned import predicted, tuned_text
from benchmarks.lab.suite.results import Result, load
from benchmarks.lab.training.settings import NO_SYNC
from zenc.language.files import load_file, load_text
from zenc.scheme.strategies import resolve_strategy
from zenc.scheme.strategy import Strategy
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile


def of_file(path: str) -> Strategy:
    return resolve_strategy(load_file(ROOT / path))[0]


def schemes_of(strategy: Strategy) -> set[str]:
    return {each.scheme.name for each in strategy.candidates.values()}


def characters() -> ModelProfile:
    """The model whose gradients become ready every millisecond."""
    names = reversed(list(new_model(SIZES, 1).named_parameters()))
    parameters = tuple(
        ParameterProfile(name, tuple(each.shape), "f32", "dense", 1.0, 1e-3 * (number + 1))
        for number, (name, each) in enumerate(names)
    )
    return ModelProfile(4, "gloo", "cpu", 9, 0.4, 0.3, 0.3, parameters, {}, 2e-3, 8e-3)


def test_ten_were_written_by_hand_of_what_the_tuner_may_use_too() -> None:
    texts = {path: of_file(path) for path in HAND_WRITTEN}
    assert len(texts) == 10 and len({each.name for each in texts.values()}) == 10
    assert set.union(*map(schemes_of, texts.values())) < schemes_of(of_file(ALLOWED))
    assert all(each.doc for each in texts.values())


@pytest.mark.parametrize("ranks", [4, 8])
def test_what_is_found_is_predicted_to_be_no_longer_than_any_by_hand(ranks: int, tmp_path: Path) -> None:
    settings = CharacterSteps(ranks, "100mbit", 70_000, "2mb", SIZES, (), "", 1, 1, 0, 1)
    text = tuned_text(settings, characters())
    found, _ = resolve_strategy(load_text(text, "tuned.zen"))
    file = str(tmp_path / "tuned.zen")
    Path(file).write_text(text, encoding="utf-8")
    steps = predicted(settings, characters(), (*HAND_WRITTEN, file), 0.0)
    assert schemes_of(found) <= schemes_of(of_file(ALLOWED))
    assert steps[file] <= 1.01 * min(steps.values())
    longer = predicted(settings, characters(), HAND_WRITTEN[:1], 0.111)
    assert longer[HAND_WRITTEN[0]] == pytest.approx(steps[HAND_WRITTEN[0]] + 0.102)


def result(**seconds: float) -> Result:
    def row(took: float) -> Row:
        spread = Spread(took, took, took)
        return Row(3, spread, spread, None, None, 1000, 1000, 0.95, 0.1)

    tuned = tuned_file(4)
    by_hand = dict.fromkeys(HAND_WRITTEN, seconds["by_hand"])
    each = {**by_hand, HAND_WRITTEN[-1]: 1.0, tuned: seconds["tuned"], BY_DDP: seconds["fp16"], NO_SYNC: 0.1}
    run: Run[dict[str, object]] = Run(4, "100mbit", 1, "2mb", {}, tuple(each), tuned, 3, 3, 2, 1)
    rows, samples = {name: row(took) for name, took in each.items()}, {name: [took] * 3 for name, took in each.items()}
    losses = {name: [4.0] * 20 for name in each}
    found = Result("steps-4", "python", "4 ranks", run, {"commit": "c"}, None, rows, samples, 1.0, 0.0, losses=losses)
    return replace(found, predicted={tuned: 2.0, HAND_WRITTEN[0]: 3.3})


def test_goals_are_met_or_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "text_of", lambda _: "strategy tuned")
    page = "<!-- results: written by the suite --><!-- end of results -->"
    met = with_tables(page, {"steps-4": result(by_hand=3.0, tuned=1.04, fp16=2.08)})
    missed = with_tables(page, {"steps-4": result(by_hand=3.0, tuned=1.1, fp16=1.1)})
    assert "at most 1.05 | 1.040 | met |" in met and "at least 1.5 | 2.00 | met |" in met
    assert "at most 1.05 | 1.100 | missed |" in missed and "at least 1.5 | 1.00 | missed |" in missed
    assert "| 8 hosts | tuned over the best by hand, at most 1.05 | not measured |  |" in met
    assert "| `nothing` | 0.001 | 3000.0 | 3000.0-3000.0 | 2.88 | 3300.0 | -42.8% | 4.00 |" in met


def test_the_page_is_that_of_the_files() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page, load(FOLDER, POINTS))
