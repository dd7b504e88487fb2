"""Advice: whether zenc is worth it, against DDP and no communication."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zenc
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.gradients.profile_io import dump_profiles
from zenc.select import search
from zenc.simulator.calibration import ESTIMATES, bandwidth_only
from zenc.simulator.network import Cluster, Switch
from zenc.simulator.training import ddp
from zenc.simulator.training.advice import DENSE, NOTHING, SPARSE, ZENC
from zenc.simulator.training.model_profile import read_model_profile
from zenc.topology.shapes import dgx

WORDS = zipf(0.02, 1.05, 20_000, 64, name="words")
WIRE = bandwidth_only("wire", 1e6)


def test_bytes_of_ddp_are_those_of_its_algorithms() -> None:
    """Sparse, DDP sends n - 1 times a rank's rows, with int64 indices; dense, 2 (n - 1) / n of the tensor."""
    way, n = Switch(8, 1e6), 8
    gathered = ddp.sparse(WORDS, way, WIRE)
    assert gathered.sent == pytest.approx((n - 1) * 400 * (8 + 4 * 64), rel=0.01)
    whole = ddp.dense(20_000 * 64, "f32", way, WIRE)
    assert whole.sent == pytest.approx(2 * (n - 1) / n * 20_000 * 64 * 4, rel=0.01)
    assert whole.seconds == pytest.approx(whole.sent / 1e6, rel=0.01)


def test_yes_where_bytes_decide() -> None:
    found = zenc.advise(WORDS, ranks=8, bandwidth="100 Mbit/s", rest=1e6, computing=0.05)
    seconds = [found.way(name).seconds for name in (NOTHING, ZENC, SPARSE, DENSE)]
    assert seconds == sorted(seconds) and seconds[0] == 0
    assert found.rival.name == SPARSE and found.ratio == pytest.approx(seconds[2] / seconds[1])
    assert found.speedup(found.way(ZENC)) == pytest.approx((0.05 + seconds[2]) / (0.05 + seconds[1]))
    assert found.answer == "yes" and found.verdict.startswith("yes: ") and "without any communication" in found.verdict
    shown = str(found)
    assert shown.splitlines()[0] == found.verdict and "not calibrated: " in shown and "predicted, not measured" in shown
    assert 'zenc.attach(ddp_model, "auto")' in shown and "\n" not in repr(found)


def test_no_and_by_how_much() -> None:
    alone = zenc.advise(WORDS, ranks=1, bandwidth=1e9)
    assert alone.verdict == "no: one rank has nobody to synchronise with"
    assert zenc.advise([], ranks=4, bandwidth=1e9, rest=1e6).verdict.startswith("no: no gradient is mostly rows")
    busy = zenc.advise(WORDS, ranks=4, bandwidth="100 Gbit/s", computing=10.0)
    assert busy.answer == "no" and f"but steps only {busy.speedup(busy.way(ZENC)):.3g} times as fast" in busy.verdict
    assert "hardly" not in str(busy) and "try it" not in str(busy)
    full = zenc.advise(uniform(1.0, 2000, 64), ranks=4, bandwidth="10 Mbit/s", calibration=WIRE)
    assert full.answer == "no" and full.rival.name == DENSE


def test_nccl_has_no_sparse_all_reduce() -> None:
    found = zenc.advise(WORDS, topology="nodes(2, gpus = 4)")
    assert found.way(SPARSE).missing == "NCCL sums no sparse tensors" and found.rival.name == DENSE
    assert found.size == 8 and "as one H100 took them" in found.notes[-1]


def test_nccl_sums_dense_tensors_as_fast_as_its_busiest_link() -> None:
    """Across machines each network card carries an eighth of the tensor, the part of its rail."""
    units, bytes = 214_000_000, 4 * 214_000_000
    inside, across = (Cluster(dgx(nodes)) for nodes in (2, 8))
    alone = ddp.dense(units, "f32", Switch(8, 450e9), ESTIMATES, on_gpu=True)
    assert alone.seconds == pytest.approx(2 * 7 / 8 * bytes / 450e9 / 0.95 + 14 * ddp.NCCL_STEP, rel=0.01)
    found = ddp.dense(units, "f32", across, ESTIMATES, on_gpu=True)
    assert found.seconds == pytest.approx(2 * 7 / 8 * bytes / 8 / 50e9 / 0.95 + 28 * ddp.NCCL_STEP, rel=0.01)
    assert ddp.dense(units, "f32", inside, ESTIMATES, on_gpu=True).seconds < found.seconds and found.kernels == 0


@pytest.mark.slow
def test_dense_by_nccl_is_compared_where_ranks_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL wins where the sum is dense, and loses on slow links where that is sparse."""
    monkeypatch.setattr(search, "REFINED", 0)
    full, sparse = uniform(0.9, 10_000_000, 1), uniform(0.001, 10_000_000, 1)
    fast = zenc.simulate(["balanced", "dense_ring"], full, topology="dgx(1)").points[0].outcomes
    assert fast[0].scheme == DENSE and len(fast) == 3 and fast[1].seconds > 2 * fast[0].seconds
    slow = zenc.simulate("balanced", sparse, ranks=8, bandwidth="25 Gbit/s", device="gpu").points[0].outcomes
    assert [each.scheme for each in slow] == ["balanced", DENSE]
    (alone,) = zenc.simulate("balanced", full, ranks=8, bandwidth="25 Gbit/s").points[0].outcomes
    assert alone.scheme == "balanced"
    assert "less than any of them: leave these gradients to DDP" in zenc.tune(full, topology="dgx(1)").note
    told = zenc.tune(sparse, ranks=8, bandwidth="25 Gbit/s", device="gpu").note
    assert "DDP's dense all-reduce by NCCL takes" in told and "less than any" not in told


def model_file(path: Path, **changes: Any) -> Path:
    """Write a model with one table of dense gradients, observed on 2 ranks; 12 kB are other gradients."""
    parameters = [
        {"name": "words", "shape": [20_000, 64], "dtype": "f32", "layout": "dense", "density": 0.02},
        {"name": "head", "shape": [30, 100], "dtype": "f32", "layout": "dense", "density": 1.0},
    ]
    seconds = {"seconds_step": 0.5, "seconds_synchronising": 0.3, "seconds_exposed": 0.2}
    own = {"ranks": 2, "backend": "gloo", "device": "cpu", "steps": 9, **seconds, "parameters": parameters}
    file = path / "model.json"
    file.write_text(dump_profiles([WORDS], {**own, **changes}), encoding="utf-8")
    return file


def test_a_dry_run_knows_all_that_is_needed(tmp_path: Path) -> None:
    file = model_file(tmp_path)
    found = zenc.advise(file, ranks=8, bandwidth="1 Gbit/s")
    assert found.load.computing == pytest.approx(0.3) and found.load.rest == 12_000
    assert str(found) == str(zenc.advise(read_model_profile(file), ranks=8, bandwidth="1 Gbit/s"))
    assert "observed on 2 ranks by gloo: 500 ms a step, 40% of it waiting" in str(found)
    assert "zenc.attach(ddp_model, \"auto\", dense=['words'])" in str(found)
    on_gpus = zenc.advise(model_file(tmp_path, device="cuda"), ranks=8, bandwidth="1 Gbit/s")
    assert on_gpus.way(SPARSE).missing


def test_schemes_that_lose_something_are_compared_where_they_are_asked_for(tmp_path: Path) -> None:
    """Tensors other than tables go through lossy schemes, and the answer is as without them."""
    plain, of = zenc.advise(model_file(tmp_path), ranks=4, bandwidth=1e7), (model_file(tmp_path), 4, 1e7)
    found = zenc.advise(of[0], ranks=of[1], bandwidth=of[2], lossy=["qsgd", "one_bit", "balanced"], rest=1e6)
    assert [way.name for way in found.ways[4:]] == ["one_bit", "qsgd", "balanced"]
    assert [way.name for way in found.lossy] == ["one_bit", "qsgd"] and not plain.lossy
    rest = zenc.simulate("one_bit", uniform(1.0, 250_000), ranks=4, bandwidth=1e7).points[0].outcomes[0]
    tables = zenc.advise(of[0], ranks=of[1], bandwidth=of[2], rest=0).way(ZENC)
    assert found.way("one_bit").seconds == pytest.approx(rest.seconds + tables.seconds)
    shown = str(found)
    assert "asked for, and never advised" in shown and "one_bit: seconds of residual, encode sign, decode" in shown
    assert "the push travels as sign(2048); the pull travels as sign(2048); what that loses is added to" in shown
    assert found.to_json()["ways"][4]["fewer_bytes"] == pytest.approx(found.way(DENSE).sent / found.way("one_bit").sent)
    assert zenc.advise(WORDS, ranks=5, bandwidth=1e7, lossy="kylix").ways[-1].missing


def test_json_has_every_number() -> None:
    data = json.loads(json.dumps(zenc.advise(WORDS, ranks=4, bandwidth=1e8, computing=1.0).to_json()))
    assert [way["name"] for way in data["ways"]] == [NOTHING, ZENC, SPARSE, DENSE]
    assert data["ways"][1]["schemes"]["words"] in ("holders", "balanced", "hierarchical_centralization", "dense_ring")
    assert data["answer"] in data["verdict"] and data["notes"] and data["ways"][0]["step"] == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"rest": -1.0},
        {"computing": float("nan")},
        {"bandwidth": "fast"},
        {"bandwidth": 1e9, "topology": "nodes(2, gpus = 2)", "ranks": None},
        {"calibration": "missing.json"},
    ],
)
def test_what_can_not_be_is_said(options: dict[str, Any]) -> None:
    with pytest.raises(zenc.CostError, match=r"bad-load|bad-calibration|bad-bandwidth"):
        zenc.advise(WORDS, **{"ranks": 4, **options})


@pytest.mark.parametrize("given", [WORDS, iter([WORDS]), {"words": WORDS}])
def test_simulate_and_tune_take_gradients_as_objects(given: Profile | Iterator[Profile] | dict[str, Profile]) -> None:
    found = zenc.simulate("balanced", given, ranks=[2, 4], bandwidth="1 Gbit/s")
    assert [point.size for point in found.points] == [2, 4] and found.notes[0].startswith("not calibrated: 20 us")


def test_simulate_and_tune_take_files_and_texts(tmp_path: Path) -> None:
    file = tmp_path / "words.json"
    file.write_text(dump_profiles([WORDS]), encoding="utf-8")
    here = zenc.simulate(["balanced", "sparcml"], file, topology="nodes(2, gpus = 2)")
    assert here.points[0].size == 4 and len(here.points[0].outcomes) == 3
    tuned = zenc.tune(file, ranks=2, bandwidth="1 Gbit/s")
    best = tmp_path / "best.zen"
    best.write_text(tuned.text(), encoding="utf-8")
    assert tuned.text().startswith("# Found by zenc.tune(...):") and zenc.check(best, ranks=2)
