"""``zenc calibrate``, as a user runs it on one machine."""

import json
import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Zenc
from tests.support.shipped import plan_of_shipped
from zenc.calibrate.compression_benchmark import SELECTIONS, SHARE, timed_compression
from zenc.calibrate.kernel_benchmark import CUT, ROWS, SINGLE, Watch, fit_kernels, kernel_of
from zenc.gradients.profile_generators import uniform
from zenc.scheme.compression import Above
from zenc.simulator.calibration import Calibration, linear_kernel, read_calibration
from zenc.simulator.compression_work import COMPRESSION, note
from zenc.simulator.predict import predict


@pytest.mark.slow
def test_processes_on_this_machine_are_measured(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("calibrate", "--nproc", "3", "-o", "here.json", "--bandwidth", "200 GB/s", "--name", "here")
    assert done.returncode == 0, done.stderr
    found = read_calibration(tmp_path / "here.json")
    assert found.name == "here" and found.bandwidth == 200e9
    assert 0 < found.efficiency < 1 and found.call + found.step + found.message > 0
    assert all(0 < kernel.seconds(1e4, 4e4, 1e6) < 0.1 for kernel in found.kernels.values())
    assert found.buffer >= 0 and set(found.compression) == set(COMPRESSION)
    assert "measuring bandwidth" in done.stderr and "  owners " in done.stdout
    used = zenc("simulate", "balanced", "--calibration", "here.json", "--units", "1000")
    assert used.returncode == 0, used.stderr


def test_selections_that_are_timed_take_about_the_same_share() -> None:
    """Among values of N(0, 1), which are those of the benchmark."""
    shares = [math.erfc(each.threshold / 2**0.5) for each in SELECTIONS if isinstance(each, Above)]
    assert shares == [pytest.approx(SHARE, rel=0.1)]


def test_what_was_measured_is_shown_and_drawn_again(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "here.json").write_text(json.dumps(Calibration("here").to_json()))
    done = zenc("calibrate", "--read", "here.json", "--plot", "here.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("here.json: here\n") and "20 us, and 5 us a message" in done.stdout
    assert ">owners</text>" in (tmp_path / "here.svg").read_text()
    (tmp_path / "bad.json").write_text("{}")
    refused = zenc("calibrate", "--read", "bad.json")
    assert refused.returncode == 1 and "error[bad-calibration]" in refused.stderr


@pytest.mark.slow
def test_one_rank_has_no_network(zenc: Zenc) -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = zenc("calibrate", **alone)
    assert done.returncode == 1 and "error[too-few-ranks]" in done.stderr


def test_who_measured_on_a_busy_machine_is_told_so(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "busy.json").write_text(json.dumps(Calibration("busy", spread=0.62).to_json()))
    done = zenc("calibrate", "--read", "busy.json")
    assert done.returncode == 0 and "62% between rounds: the machine was busy, measure again" in done.stdout
    assert "warning[busy-machine]" in done.stderr


@given(
    st.lists(st.floats(1e-5, 1e-2), min_size=len(SINGLE), max_size=len(SINGLE)), st.floats(1e-5, 1e-1), st.booleans()
)
def test_times_of_a_busy_machine_make_a_kernel_that_never_falls(single: list[float], rows: float, moves: bool) -> None:
    found = kernel_of(single, rows, moves)
    taken = [found.seconds(share * 1e6, 0.0, 1e6) for share in (0.0, 1e-4, 1e-3, 0.02, 0.1, 0.3, 1.0)]
    assert all(0 <= a <= b for a, b in pairwise(taken)) and not found.unsound()


def test_one_round_that_was_held_up_hardly_counts() -> None:
    quiet = [1e-4, 1.2e-4, 1.4e-4, 2e-4, 4e-4]
    held_up = [5e-3, *quiet[1:]]
    (a, b) = (kernel_of(times, 1e-2, False).seconds(1e5, 0.0, 1e6) for times in (quiet, held_up))
    assert b == pytest.approx(a, rel=0.3)


def test_a_watch_says_how_far_rounds_differ() -> None:
    ticks = iter([0, 9, 10, 11, 20, 21, 30, 33, 40, 44, 50, 55])  # to warm up 9, then 1, 1, 3, 4 and 5
    watch = Watch(lambda: float(next(ticks)))
    assert watch.least(lambda: None) == 1 and watch.spread == 2.0


def test_selections_and_codes_are_timed_and_predictions_say_so() -> None:
    """The better of two rounds counts, and a clock that doubles makes a predicted call longer."""
    speeds = timed_compression(lambda run: min(_seconds(run), _seconds(run)), 4096)
    assert set(speeds) == set(COMPRESSION) and min(speeds.values()) > 0
    slow, plan = {name: speed / 1e3 for name, speed in speeds.items()}, plan_of_shipped("one_bit")
    profile, (quick, late) = uniform(1.0, 4096), (Calibration(compression=each) for each in (speeds, slow))
    assert (
        predict(plan, 4, profile, calibration=late).kernels > 2 * predict(plan, 4, profile, calibration=quick).kernels
    )
    assert note(plan, quick) == "seconds of what selects and encodes are calibrated"
    told = note(plan_of_shipped("oscar_sw"), Calibration(compression={"sketch": 1e9}))
    assert told == "seconds of probable are estimated by passes over memory"


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def test_kernels_from_the_times_of_shapes() -> None:
    """Kernels of 7 ns a unit, 0.5 ns a slot and 2 GB/s are found again from their times."""
    one = linear_kernel(7e-9, 2e9, 0.5e-9)
    times = [one.seconds(each.held, 4 * each.held * each.width, each.units) for each in (*SINGLE, ROWS)]
    found = fit_kernels([*({"merge": each, "index": each} for each in times), {"finer": 1e-9 * CUT.held * CUT.width}])
    for units, bytes, slots in ((100, 1e6, 1e4), (1e4, 0.0, 1e4), (0, 0.0, 1e6)):
        assert found["merge"].seconds(units, bytes, slots) == pytest.approx(one.seconds(units, bytes, slots))
    assert found["index"].seconds(100, 0.0, 1e4) == pytest.approx(one.seconds(100, 400, 1e4))
    assert found["finer"].seconds(10, 0.0, 10) == pytest.approx(1e-8)
