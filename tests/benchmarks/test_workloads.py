"""Loads of the lab beside what it draws by a law: a profile of production tables, and recorded traces."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.lab.__main__ import parser, settings_of
from benchmarks.lab.record import steps
from benchmarks.lab.settings import TRACES
from benchmarks.lab.workloads import PROFILE, TRACE, profile_in, recorded, units_of
from benchmarks.locality.__main__ import SHIPPED, shipped
from examples.language_model.batches import Batches
from examples.language_model.model import Sizes
from zenc.gradients.profile_fit import from_gradients

SIZES = Sizes(vocabulary=500, width=4, context=3, batch=20, samples=10)
TEXT = torch.arange(6000) * 7919 % 500


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # Adagrad's own
def test_the_recorder_keeps_the_words_of_each_rank_and_step():
    own = [Batches.of_rank(rank, TEXT, SIZES) for rank in range(3)]
    for held in steps(TEXT, SIZES, 3, 2, "words_in"):
        for rows, batches in zip(held, own, strict=True):
            assert rows.tolist() == sorted(set(batches.next().before.flatten().tolist()))


def test_the_shipped_traces_are_of_the_demonstration():
    for file in sorted(TRACES.iterdir()):
        of = recorded(str(file), 16)
        assert (of.units, of.width, of.size) == (60_000, 64, 16)
        assert all(1000 < len(rows) <= Sizes.batch * Sizes.context for rows in of.held)
        assert file.stat().st_size < 50_000
    assert TRACE.exists()


def test_the_shipped_file_is_what_the_rule_gives():
    assert profile_in(str(SHIPPED)).to_json() == shipped().to_json()
    assert shipped().units == 139_923


def test_the_lab_draws_by_a_profile():
    options = ["--network", "loopback", "--workload", "profile", "--ranks", "4"]
    settings = settings_of(parser().parse_args(options))
    of, profile = units_of(settings.workload, 4, 1), profile_in(str(PROFILE))
    assert (of.units, of.width, of.size) == (profile.units, 64, 4) and settings.workload.density == profile.density
    fitted = from_gradients(of)
    for k in (1, 2, 4):
        assert fitted.union(k) == pytest.approx(profile.union(k), rel=0.02)
    assert fitted.overlap == pytest.approx(profile.overlap, rel=0.02)
    again, other = units_of(settings.workload, 4, 1), units_of(settings.workload, 4, 2)
    assert np.array_equal(of.held[0], again.held[0]) and not np.array_equal(of.held[0], other.held[0])
