"""Strategies of models: the file that a search writes means its prediction, and is lossless unless asked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import zenc
from zenc.cli import app
from zenc.errors import CostError
from zenc.gradients.profile_generators import zipf
from zenc.language.files import load_text
from zenc.simulator.calibration import DEFAULTS, ESTIMATES
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile
from zenc.strategy.resolve import resolve_strategy
from zenc.strategy.search.tuned import strategy_text
from zenc.strategy.search.tuning import buckets
from zenc.strategy.simulation.model_step import step_of
from zenc.strategy.simulation.step import StepTensor

SIZES = {
    "head": 40_000, "block.1.weight": 2_000_000, "block.1.bias": 500, "block.0.weight": 3_000_000, "block.0.bias": 0,
}  # fmt: skip
LOSSY = "dense_ring, topk_a2a(0.01), one_bit"


def model(table: bool = False) -> ModelProfile:
    names = [*SIZES, *(["words"] if table else [])]
    parameters = tuple(
        ParameterProfile(name, (SIZES.get(name, 50_000), *([64] if name == "words" else [])), "f32",
                         "sparse" if name == "words" else "dense", 1.0, 0.002 * (at + 1))
        for at, name in enumerate(names)
    )  # fmt: skip
    profiles = {"words": replace(zipf(0.01, 1.1, 50_000, 64, "f32"), name="words")} if table else {}
    return ModelProfile(2, "gloo", "cpu", 20, 0.1, 0.08, 0.07, parameters, profiles, 0.004, 0.002 * len(names))


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("schemes", [LOSSY, "dense_ring, dense_halving_doubling"])
def test_the_file_of_the_best_strategy_is_predicted_as_it_was_found(tmp_path: Path, table: bool, schemes: str) -> None:
    found = zenc.tune_strategy(model(table), schemes, ranks=4, bandwidth="1 Gbit/s")
    file = tmp_path / "step.zen"
    file.write_text(found.text(), encoding="utf-8")
    again = zenc.simulate_step(model(table), file, ranks=4, bandwidth="1 Gbit/s")
    assert again.result.seconds == pytest.approx(found.found.best.seconds, rel=1e-9)
    assert again.result.exposed == pytest.approx(found.found.best.exposed, rel=1e-9)
    assert {tensor["name"] for tensor in found.to_json()["tensors"]} == {*SIZES, *(["words"] if table else [])}


def test_the_best_is_within_a_percent_of_all_that_it_was_compared_with() -> None:
    found = zenc.tune_strategy(model(), LOSSY, ranks=4, bandwidth="1 Gbit/s").found
    assert found.best.seconds <= 1.01 * min(other.seconds for other in found.others.values())


def test_nothing_is_lost_where_that_gains_nothing_or_is_not_asked_for() -> None:
    unasked = zenc.tune_strategy(model(), ranks=4, bandwidth="1 Gbit/s").found.best
    hidden = tuple(replace(each, ready=300 * (each.ready or 0)) for each in model().parameters)
    found = zenc.tune_strategy(replace(model(), parameters=hidden), LOSSY, ranks=4, bandwidth="10 Gbit/s").found.best
    assert set(unasked.schemes) <= {"dense_ring", "dense_halving_doubling"}
    assert set(found.schemes) == {"dense_ring"}


def test_groups_that_are_not_buckets_come_with_the_size_of_buckets() -> None:
    tuned = zenc.tune_strategy(model(), "dense_ring", ranks=4, bandwidth="1 Gbit/s")
    texts = {groups: replace(tuned, found=replace(tuned.found, best=replace(tuned.found.best, ends=ends))).text()
             for groups, ends in (("buckets", buckets(tuned.of.step)), ("cuts(2, 4)", (2, 4)))}  # fmt: skip
    assert [("bucket_cap_mb" in text, groups in text) for groups, text in texts.items()] == [
        (False, True),
        (True, True),
    ]


def test_a_sparse_table_has_a_sparse_scheme_of_its_own() -> None:
    strategy, _ = resolve_strategy(load_text(zenc.tune_strategy(model(table=True), LOSSY, ranks=4).text(), "step.zen"))
    assert strategy.matching("words", 50_000 * 64 * 4).candidates[0].name not in ("dense_ring", "one_bit")


def test_a_profile_without_moments_is_refused() -> None:
    unseen = replace(model(), parameters=tuple(replace(each, ready=None) for each in model().parameters))
    with pytest.raises(zenc.CostError, match="does not say when gradients are ready"):
        step_of(unseen)


def test_cuts_beyond_the_last_tensor_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "step.zen"
    file.write_text("strategy cut { groups: cuts(2, 9) others: dense_ring }", encoding="utf-8")
    with pytest.raises(zenc.CostError, match="before tensor 9, and the model has 5"):
        zenc.simulate_step(model(), file, ranks=4)


@pytest.mark.parametrize(
    ("schemes", "rules"),
    [
        ("aaaa", []),
        ("bbab", ["tensors above 32 B: b"]),
        ("baba", ['tensors "block.*.bias": a']),
        ("abaa", ['tensors "block.0.bias": b']),
        ("abab", ['tensors "block.*.bias": b']),
    ],
)
def test_rules_are_by_size_or_by_pattern_where_these_say_all(schemes: str, rules: list[str]) -> None:
    names = {"block.0.weight": 300, "block.0.bias": 9, "block.1.weight": 8, "block.1.bias": 100}
    tensors = [StepTensor(name, numel, 0.0) for name, numel in names.items()]
    text = strategy_text("s", "d", tensors, list(schemes))
    assert [line.strip() for line in text.splitlines() if line.strip().startswith("tensors")] == rules


def test_names_that_the_language_can_not_hold_are_written_as_patterns() -> None:
    names = {'a"b\n\x85\u2028\udcff.weight': 300, "block.weight": 9, 'c"d.weight': 8, "e.weight": 400}
    tensors = [StepTensor(name, numel, 0.0) for name, numel in names.items()]
    schemes = ["one_bit", "dense_ring", "dense_ring", "dense_ring"]
    text = strategy_text("s", "d", tensors, schemes, named=['c"d.weight'])
    lines = [line.strip() for line in text.splitlines()]
    assert lines[2:4] == ['tensors "c*d.weight": dense_ring', 'tensors "a*b****.weight": one_bit']
    assert zenc.open(text).kind == "strategy", "it can be read"


def command_line(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_line_writes_draws_and_traces(tmp_path: Path) -> None:
    profile, file, trace = tmp_path / "model.json", tmp_path / "step.zen", tmp_path / "trace.json"
    model().save(profile)
    of = ("--model", profile, "--ranks", "4", "--json")
    tuned = command_line("tune", "--strategy", *of, "--schemes", LOSSY, "-o", file)
    shown = command_line("simulate", "--strategy", file, *of, "--trace", trace)
    seconds = json.loads(shown.stdout)["seconds"]
    assert json.loads(tuned.stdout)["best"]["seconds"] == pytest.approx(seconds)
    bars = [event for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
    assert max(bar["ts"] + bar["dur"] for bar in bars) == pytest.approx(1e6 * seconds)
    assert command_line("simulate", "--strategy", file).exit_code == 2


@pytest.mark.parametrize("slow", ["gpu", "host"])
def test_tensors_go_to_the_host_where_a_calibrated_one_is_faster(tmp_path: Path, slow: str) -> None:
    gpu = replace(ESTIMATES, call=5e-3 if slow == "gpu" else 0.0, bandwidth=1e9)
    host = replace(DEFAULTS, call=5e-3 if slow == "host" else 0.0, bandwidth=1e9, guess="")
    of = model(table=True)
    found = zenc.tune_strategy(of, "dense_ring", ranks=2, calibration=gpu, device="gpu", host=host)
    hosted = {each["name"] for each in found.to_json()["tensors"] if each["scheme"].endswith("on host")}
    assert found.found.pruned == (() if slow == "gpu" else ("dense_ring on host",))
    assert (hosted > {"words"}) == (slow == "gpu"), hosted
    assert ("ot tried on the host" in found.text()) == (slow == "host")
    file = tmp_path / "step.zen"
    file.write_text(found.text(), encoding="utf-8")
    again = zenc.simulate_step(of, file, ranks=2, calibration=gpu, device="gpu", host=host)
    assert again.result.seconds == pytest.approx(found.found.best.seconds, rel=1e-9)
    assert any("25 GB/s" in note for note in again.notes)
    with pytest.raises(CostError, match="host is for ranks that have GPUs"):
        zenc.simulate_step(of, file, ranks=2, host=host)
