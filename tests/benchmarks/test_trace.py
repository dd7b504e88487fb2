"""Recorded traces: what the recorder keeps of training, and the lab on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.lab.__main__ import parser, settings_of
from benchmarks.lab.bounds import bounds
from benchmarks.lab.record import save, steps
from benchmarks.lab.settings import ROOT, TRACES, LabError
from benchmarks.lab.workloads import TRACE, recorded, trace_of, units_of
from examples.language_model.batches import Batches
from examples.language_model.model import Sizes

SIZES = Sizes(vocabulary=500, width=4, context=3, batch=20, samples=10)
TEXT = torch.arange(6000) * 7919 % 500


def settings(*arguments: str):
    return settings_of(parser().parse_args(["--network", "loopback", "--workload", "trace", *arguments]))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # Adagrad's own
def test_the_recorder_keeps_the_words_of_each_rank_and_step():
    own = [Batches.of_rank(rank, TEXT, SIZES) for rank in range(3)]
    for held in steps(TEXT, SIZES, 3, 2, "words_in"):
        for rows, batches in zip(held, own, strict=True):
            assert rows.tolist() == sorted(set(batches.next().before.flatten().tolist()))


def test_all_ranks_draw_the_same_negatives():
    (held,) = steps(TEXT, SIZES, 2, 1, "words_out")
    batches = [Batches.of_rank(rank, TEXT, SIZES).next() for rank in range(2)]
    assert torch.equal(batches[0].negatives, batches[1].negatives)
    for rows, batch in zip(held, batches, strict=True):
        assert set(rows.tolist()) == {*batch.target.tolist(), *batch.negatives.tolist()}


def test_the_shipped_traces_are_of_the_demonstration():
    for file in sorted(TRACES.iterdir()):
        of = recorded(str(file), 16)
        assert (of.units, of.width, of.size) == (60_000, 64, 16)
        assert all(1000 < len(rows) <= Sizes.batch * Sizes.context for rows in of.held)
        assert file.stat().st_size < 50_000
    assert TRACE.exists()


def test_a_trace_is_taken_as_it_is(tmp_path):
    held = [np.array([1, 5, 299]), np.array([5]), np.array([], dtype=np.int64)]
    save(tmp_path / "t.npz", 300, 2, held)
    of = units_of(trace_of(tmp_path / "t.npz", 3, False), 3, seed=9)
    assert [ids.tolist() for ids in of.held] == [[1, 5, 299], [5], []]
    assert bounds(of, None).receive_bytes == 3 * 8, "rank 2 lacks all"
    fewer = trace_of(tmp_path / "t.npz", 2, False)
    assert [len(ids) for ids in units_of(fewer, 2, seed=9).held] == [3, 1] and fewer.density == 4 / 600
    mixed = units_of(trace_of(tmp_path / "t.npz", 3, True), 3, seed=9)
    assert sorted(mixed.holders()) == sorted(of.holders()) and mixed.held[0].tolist() != [1, 5, 299]


def test_the_first_step_is_what_is_taken_by_itself():
    load = settings("--ranks", "16").workload
    assert load.indices == str(TRACE.relative_to(ROOT)) and load.units == 60_000
    assert 0.02 < load.density < 0.03


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "17"], "has the units of 16 ranks, not of 17; benchmarks.lab.record records more"),
        (["--density", "0.1", "--units", "5"], "leave --density and --units out"),
        (["--indices", "no.npz"], "no.npz holds no index sets"),
        (["--workload", "rows", "--indices", "x.npz"], "--indices is for --workload trace"),
    ],
)
def test_what_is_no_trace_is_refused(arguments, said):
    with pytest.raises(LabError, match=re.escape(said)):
        settings(*arguments)


@pytest.mark.slow
def test_two_ranks_send_what_explain_counts(tmp_path):
    file, found = tmp_path / "small.npz", tmp_path / "lab.json"
    (held,) = islice(steps(TEXT, SIZES, 2, 1, "words_in"), 1)
    save(file, SIZES.vocabulary, SIZES.width, held)
    lab = [sys.executable, "-m", "benchmarks.lab", "--network", "loopback", "--ranks", "2", "--rounds", "1"]
    load = ["--workload", "trace", "--indices", str(file), "--schemes", "holders", "--peers", "--json", str(found)]
    done = subprocess.run([*lab, *load], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    explain = [sys.executable, "-m", "zenc", "explain", "holders", "--indices", str(file), "--json"]
    counted = json.loads(subprocess.run(explain, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    sent = json.loads(Path(found).read_text())["peers"]["holders"]["counted_sent"]
    assert sent == counted["bytes"]["total"]["most_sent"]
