"""``benchmarks.convergence``: simulated ranks train as processes do, and the page shows what the files hold."""

from __future__ import annotations

import pytest

from benchmarks.convergence import trainer
from benchmarks.convergence.__main__ import curve
from benchmarks.convergence.runs import RUNS
from tests.benchmarks.convergence_jobs import SIZES, characters

BY_NAME = {run.name: run for run in RUNS}
JOBS = "tests.benchmarks.convergence_jobs:"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top", "dgc-warm"])
def test_processes_under_ddp_train_to_the_same_bits(four, name):
    run = BY_NAME[name]
    by_ddp = four.run(JOBS + "by_ddp", run=run, steps=4)
    assert by_ddp == [by_ddp[0]] * 4
    assert four.run(JOBS + "played", size=1, run=run, steps=4) == by_ddp[:1]


def test_a_run_from_a_checkpoint_is_the_same_and_one_that_forgets_is_not(monkeypatch):
    monkeypatch.setattr(trainer, "text", characters)
    through, again, forgotten = (curve(BY_NAME[name], 1, 8, SIZES) for name in ("top", "restarted", "forgotten"))
    assert through.weights == again.weights != forgotten.weights
    assert through.looks == again.looks and through.end.step == 8
    assert through.end.left and through.end.bits < 7
