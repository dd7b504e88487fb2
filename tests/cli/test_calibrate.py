"""``zenc calibrate``, as a user runs it on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Zenc
from zenc.cost.calibration import read_calibration
from zenc.runtime.calibrate import SHAPES, _solved


def test_processes_on_this_machine_are_measured(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("calibrate", "--nproc", "3", "-o", "here.json", "--bandwidth", "10 TB/s", "--name", "here")
    assert done.returncode == 0, done.stderr
    found = read_calibration(tmp_path / "here.json")
    assert found.name == "here" and found.bandwidth == 10e12
    assert 0 < found.efficiency < 0.1 and found.step + found.message > 0
    assert all(0 <= kernel.unit < 1e-5 and kernel.speed > 1e7 for kernel in (found.pack, found.merge, found.expand))
    assert "measuring bandwidth" in done.stderr and "  pack " in done.stdout
    used = zenc("simulate", "balanced", "--calibration", "here.json", "--units", "1000")
    assert used.returncode == 0, used.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "start it by torchrun"),
        (("--nproc", "1"), "greater than or equal to 2"),
        (("--nproc", "2", "--bandwidth", "0 Gbit/s"), "more than nothing"),
        (("--nproc", "2", "--bandwidth", "fast"), "a bandwidth is a number and a unit"),
        (("--nproc", "2", "--backend", "mpi"), "gloo or nccl"),
        (("--nproc", "2", "-o", "no/such/folder.json"), "there is no folder"),
    ],
)
def test_bad_input_is_said(zenc: Zenc, arguments: tuple[str, ...], words: str) -> None:
    done = zenc("calibrate", *arguments)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert words in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_one_rank_has_no_network(zenc: Zenc) -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = zenc("calibrate", **alone)
    assert done.returncode == 1 and "error[too-few-ranks]" in done.stderr


def test_kernels_from_two_shapes() -> None:
    """7 ns a unit and 2 GB/s, and back."""
    rows, elements = (held * (7e-9 + 4 * width / 2e9) for _, width, held in SHAPES)
    found = _solved(rows, elements)
    assert found.unit == pytest.approx(7e-9) and found.speed == pytest.approx(2e9)
