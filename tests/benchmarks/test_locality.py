"""``benchmarks.locality``: the profile of production tables has the published statistics, and the lab draws by it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.lab.__main__ import parser, settings_of
from benchmarks.lab.settings import LabError, Settings
from benchmarks.lab.workloads import PROFILE, by_profile, profile_in, units_of
from benchmarks.locality.__main__ import SHIPPED, STATISTICS, classes, profile_of, shipped
from zenc.gradients.profile import Profile
from zenc.gradients.profile_fit import from_gradients


def statistics() -> dict:
    return json.loads(STATISTICS.read_text(encoding="utf-8"))


def lab(*arguments: str) -> Settings:
    return settings_of(parser().parse_args(["--network", "loopback", *arguments]))


def test_classes_have_the_published_rows_and_look_ups():
    found, published = classes(statistics()), statistics()
    assert sum(rows for _, rows in found) == pytest.approx(published["distinct_rows"], rel=1e-3)
    assert sum(hits * rows for hits, rows in found) == pytest.approx(published["indices"])
    for (hits, rows), (least, most, share, _) in zip(found, published["hits"], strict=False):
        assert least < hits < 1.03 * most, "but for rounded shares"
        assert rows / published["distinct_rows"] == pytest.approx(share, abs=6e-4), "to the published decimals"


def test_a_rank_of_the_whole_batch_holds_every_row_and_more_ranks_hold_more():
    whole = profile_of(statistics(), samples=131_072)
    assert whole.density == pytest.approx(1, abs=1e-9)
    density = [profile_of(statistics(), samples).density for samples in (64, 512, 2048)]
    assert density == sorted(density)
    for samples in (64, 2048):
        double = profile_of(statistics(), 2 * samples)
        assert profile_of(statistics(), samples).union(2) == pytest.approx(double.density, rel=0.02)


def test_the_shipped_file_is_what_the_rule_gives():
    assert profile_in(str(SHIPPED)).to_json() == shipped().to_json()
    assert shipped().units == 139_923


def test_the_lab_draws_by_a_profile(tmp_path):
    settings = lab("--workload", "profile", "--ranks", "4")
    of, profile = units_of(settings.workload, 4, 1), profile_in(str(PROFILE))
    assert (of.units, of.width, of.size) == (profile.units, 64, 4) and settings.workload.density == profile.density
    fitted = from_gradients(of)
    for k in (1, 2, 4):
        assert fitted.union(k) == pytest.approx(profile.union(k), rel=0.02)
    assert fitted.overlap == pytest.approx(profile.overlap, rel=0.02)
    again, other = units_of(settings.workload, 4, 1), units_of(settings.workload, 4, 2)
    assert np.array_equal(of.held[0], again.held[0]) and not np.array_equal(of.held[0], other.held[0])


def test_ranges_of_a_profile_have_their_own_units():
    held = by_profile(Profile("two", 100, 1, "f32", None, (((1.0, 0.5), (0.0, 0.5)), ((0.0, 1.0),))), 2, 0).held
    assert np.array_equal(held[0], held[1]) and len(held[0]) == 25 and held[0].max() < 50


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "x.json"], "--profile is for --workload profile"),
        (["--workload", "profile", "--zipf", "1"], "a profile is drawn as it says: leave --zipf out"),
        (["--workload", "profile", "--profile", "/no/such.json"], "holds no profiles"),
        (["--workload", "profile", "--profile", "benchmarks/lab/models/words-4.json"], "holds 2 profiles"),
    ],
)
def test_what_can_not_be_drawn_is_refused(arguments, said):
    with pytest.raises(LabError, match=said):
        lab(*arguments)
