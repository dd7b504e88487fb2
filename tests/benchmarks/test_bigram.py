"""``benchmarks.bigram``: lanes that train the same table bit for bit, and a page that has what the last run found."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmarks.bigram.__main__ import PAGE, RESULTS, parser, settings_of
from benchmarks.bigram.model import Batches, rows_of
from benchmarks.bigram.report import Point, difference, page_of, point, sent_of, table_of
from benchmarks.bigram.settings import LANES, WRITTEN, ZENC, ZENC_ON_DEMAND, Bigrams, Table
from benchmarks.lab.launch import launch
from benchmarks.lab.settings import LabError

SMALL = ["--rows", "3001", "--width", "6", "--tokens", "40", "--rounds", "2", "--network", "loopback"]
TEXT = (np.arange(4000) ** 2 % 211).astype(np.int32)


def settings(ranks: int) -> Bigrams:
    return settings_of(parser().parse_args(SMALL), ranks, "")


def results() -> list[Point]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))["points"]


def test_all_lanes_train_the_same_table(tmp_path):
    np.save(tmp_path / "words.npy", TEXT)
    records = launch(settings(2), 120, ("benchmarks.bigram.worker", str(tmp_path / "words.npy")))
    found = point(settings(2), 0.0, records)
    assert set(found["lanes"]) == set(LANES)
    assert {name: lane["apart"] for name, lane in found["lanes"].items()} == dict.fromkeys(LANES, 0.0)
    assert all(len(losses) == 4 and len(set(losses)) == 4 for losses in records[0]["losses"].values())
    assert records[0]["losses"][ZENC] != records[1]["losses"][ZENC], "ranks have tokens of their own"
    assert "| dense (computed) |" in table_of(found)


def test_rows_are_found_by_the_hash():
    assert rows_of(torch.tensor([3, 5, 60_000], dtype=torch.int32), 377_280).tolist() == [
        (36313 * 5 ^ 27191 * 3) % 377_279,
        (36313 * 60_000 ^ 27191 * 5) % 377_279,
    ]


def test_batches_are_of_the_step_and_the_rank():
    text = torch.from_numpy(TEXT)
    batches = [Batches(text, Table(3001, 6, 40), rank) for rank in range(2)]
    one, again, other = batches[0].of_step(1), batches[0].of_step(1), batches[1].of_step(1)
    assert torch.equal(one.rows, again.rows) and not torch.equal(one.rows, other.rows)
    assert len(one.rows) == len(one.target) == 40 and not torch.equal(one.rows, batches[0].of_step(2).rows)


def test_a_lane_that_does_not_train_as_the_others_is_found():
    times = [{"round": 0, "started": 1.0, "ended": 2.0, "processor": 0.5, "interface": None, "counted": None}]
    samples = {name: times for name in LANES}
    for last in (6.001, float("nan")):
        losses = {name: [8.0, last if name == ZENC else 6.0] for name in LANES}
        records = [{"machine": {"cores": 2}, "samples": samples, "losses": losses}]
        with pytest.raises(LabError, match="zenc does not train as all-to-all does: its losses differ by"):
            point(settings(1), 0.0, records)
    assert difference([[1.0, 2.0]], [[1.0, 2.5]]) == pytest.approx(0.2)


def test_the_page_has_the_last_run():
    assert page_of(results()) in PAGE.read_text(encoding="utf-8")


def test_the_target_on_eight_hosts():
    """Bytes at any rate; time where the network is what a step waits for."""
    points = {(of["settings"]["ranks"], of["settings"]["rate"]): of["lanes"] for of in results()}
    assert {ranks for ranks, _ in points} == {4, 8}
    for (ranks, rate), lanes in points.items():
        assert sent_of(lanes[WRITTEN]) / sent_of(lanes[ZENC_ON_DEMAND]) > (1.3 if ranks == 8 else 1.2)
        assert sent_of(lanes[WRITTEN]) / sent_of(lanes[ZENC]) > 0.97, "the same rows, and as many bytes"
        if rate == "100mbit" and ranks == 8:
            assert 1 / lanes[ZENC_ON_DEMAND]["ratio"]["median"] > 1.3
        assert all(lane["apart"] == 0 for lane in lanes.values())
