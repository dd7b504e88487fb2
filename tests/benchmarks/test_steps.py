"""``benchmarks.lab.steps``: the tuner and the ten use the same schemes, and goals and page follow from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.convergence.characters import SIZES, new_model
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.settings import ROOT
from benchmarks.lab.steps.suite import ALLOWED, HAND_WRITTEN
from benchmarks.lab.steps.tuned import predicted, tuned_text
from zenc.language.files import load_file, load_text
from zenc.scheme.strategies import resolve_strategy
from zenc.scheme.strategy import Strategy
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile


def of_file(path: str) -> Strategy:
    return resolve_strategy(load_file(ROOT / path))[0]


def schemes_of(strategy: Strategy) -> set[str]:
    return {each.scheme.name for each in strategy.candidates.values()}


def characters() -> ModelProfile:
    """Return the model whose gradients become ready every millisecond."""
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
