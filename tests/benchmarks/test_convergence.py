"""Convergence, strategies and reproduced figures: ranks as processes do, fits and costs of papers, pages of JSON."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.convergence import trainer
from benchmarks.convergence.__main__ import curve
from benchmarks.convergence.characters import ALPHABET, Sizes, Text, batches, loss_of, new_model, windows
from benchmarks.convergence.runs import RUNS, Run
from benchmarks.convergence.trainer import Trainer, compiled, digest
from benchmarks.pages import rounded
from benchmarks.reproduce import __main__ as reproduce_zen
from benchmarks.reproduce.claims import checks
from benchmarks.reproduce.cost import cost
from benchmarks.reproduce.fits import POINTS
from benchmarks.reproduce.results import crossovers, losses, overflows, pair, results
from benchmarks.reproduce.workloads import fitted, workload
from benchmarks.strategies import __main__ as strategies
from benchmarks.strategies import espresso, groups, oscar, others, peers
from benchmarks.strategies.traces import models
from tests.support.local import collectives, run_all

SIZES = Sizes(context=4, width=4, hidden=48, narrow=24, batch=8)
SEED = 3


def characters() -> Text:
    drawn = torch.randint(0, ALPHABET, (3000,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Text(drawn[:2000], drawn[2000:])


def by_ddp(group: dist.ProcessGroup, run: Run, steps: int) -> str:
    """Train in one process a rank, with all parameters in one bucket that goes through the scheme."""
    model = DistributedDataParallel(new_model(SIZES, SEED), process_group=group, bucket_cap_mb=64)
    zenc.attach(model, compiled(run.scheme, run.ranks), dense=True, least_values=1, deadline=30)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.rate, momentum=run.momentum)
    generator = batches(SEED, group.rank())
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, windows(characters().train, SIZES.batch, SIZES.context, generator)).backward()
        optimizer.step()
    return digest(model.parameters())


def played(_: dist.ProcessGroup, run: Run, steps: int) -> str:
    """Train all ranks in this process."""
    trainer = Trainer(run, SEED, SIZES, characters())
    for _ in range(steps):
        trainer.step()
    return digest(trainer.parameters)


BY_NAME = {run.name: run for run in RUNS}
JOBS = "tests.benchmarks.test_convergence:"


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


COMMITTED: dict[str, Any] = strategies.PART.kept()


def test_a_case_of_each_table_is_computed_again() -> None:
    """The small cases run here; `make strategies` computes all."""
    lstm = next(row for row in espresso.rows_of("LSTM"))
    assert lstm == pytest.approx(next(row for row in COMMITTED["espresso"] if row["model"] == "LSTM"))
    assert groups.row("LSTM", "dgc") == pytest.approx(next(r for r in COMMITTED["groups"] if r["model"] == "LSTM"))
    assert others.byteps()["steps"] == pytest.approx(COMMITTED["byteps"]["steps"])
    assert peers.rows_of("LSTM")[0] == pytest.approx(next(r for r in COMMITTED["peers"] if r["model"] == "LSTM"))
    assert groups.compared()[0] == pytest.approx(COMMITTED["mergecomp"][0])


def test_oscar_is_simulated_from_the_messages_that_were_counted() -> None:
    of, bits = COMMITTED["oscar"], 12
    row = next(row for row in oscar.simulated(of) if row["bits"] == bits)
    assert row == pytest.approx(next(row for row in of["rows"] if row["bits"] == bits))
    slowest = sum(max(step) for step in of["messages"]["12"]["by bytes"])
    dense = 2 * (oscar.RANKS - 1) * -(-of["values"] // oscar.RANKS) * 4
    assert row["faster"] == pytest.approx(dense / slowest, rel=0.02), "without latency a step takes its longest message"


def test_the_recorder_joins_the_packets_of_a_message() -> None:
    """The recorder's counts of two ranks that send as real calls do add up to the bytes of the calls' statistics."""
    gradients = torch.randn(2, 40_000)
    recorder = oscar.Recorder()
    ranks = collectives(zenc.compile("dense_ring", ranks=2), 2, on_send=recorder.on_send)
    run_all(ranks, list(gradients), "sum")
    counts = recorder.counts()
    assert len(counts) == 2 and sum(map(sum, counts)) == sum(rank.stats["bytes_sent"] for rank in ranks)


def test_no_choice_is_worse_than_simple_ones_or_takes_longer_than_published() -> None:
    cases = COMMITTED["never worse"]
    assert len(cases) == len(models()) * len(espresso.TOPOLOGIES) * len(espresso.COMPRESSORS)
    assert all(case["best"] <= min(case["plain"], case["all"], case["two groups"]) for case in cases)
    dimensions = (*espresso.CRIPPLED, *espresso.UNSEARCHED)
    assert all(row[name] >= 1 - 1e-9 for row in COMMITTED["crippled"] for name in dimensions)
    for row in COMMITTED["times"]:
        assert row["selection ms"] <= row["selection published"] and row["offload ms"] <= row["offload published"]


REPRODUCED: dict[str, Any] = reproduce_zen.PART.kept()


@pytest.mark.parametrize("name", POINTS)
def test_a_fit_meets_the_published_point(name: str) -> None:
    ranks, gamma, _ = POINTS[name]
    assert float(fitted(name).densification(ranks)) == pytest.approx(gamma(), rel=1e-6)


FORMULAS: dict[str, Callable[[Any], float]] = {
    "AllReduce": lambda d: 2 * 15 / 16,
    "AGsparse": lambda d: 15 * 2 * d(8),
    "SparCML": lambda d: 2 * (d(8) + d(16) + d(32) + d(64)),
    "Zen with COO": lambda d: 15 / 16 * 2 * (d(8) + d(128)),
    "Zen": lambda d: 15 / 16 * (2 * d(8) + d(128) + 1 / 32),
}
"""Bytes that cross a card, over the tensor: section 3 of the paper, for 16 machines of 8 GPUs."""


@pytest.mark.parametrize("scheme", FORMULAS)
def test_bytes_are_those_of_the_formulas(scheme: str) -> None:
    of = workload("NMT")
    expected = FORMULAS[scheme](lambda k: float(of.profile.union(k))) * of.values * 4
    assert cost(scheme, of, 25).bytes == pytest.approx(expected, rel=1e-3)


def test_times_on_the_page_are_those_of_the_cost_model() -> None:
    (kept,) = (each["published"] for each in REPRODUCED["seconds"] if each["model"] == "NMT")
    for scheme, seconds in kept.items():
        assert cost(scheme, workload("NMT"), 25).seconds == pytest.approx(seconds, rel=1e-3)


def test_the_json_is_what_is_computed() -> None:
    for name, compute in (("crossover", crossovers), ("losses", losses), ("overflow", overflows), ("pair", pair)):
        assert REPRODUCED[name] == rounded(compute())
    assert REPRODUCED["checks"] == checks()


@pytest.mark.slow
def test_everything_again() -> None:
    assert differences(results(), REPRODUCED) == []


def differences(found: Any, kept: Any, where: str = "") -> list[str]:
    """Return where ``found`` is not ``kept`` to 1 in 1,000: versions of numpy add in different orders."""
    if isinstance(kept, dict) and found.keys() == kept.keys():
        pairs = [(found[key], kept[key], f"{where}.{key}") for key in kept]
    elif isinstance(kept, list) and len(found) == len(kept):
        pairs = [(*pair, f"{where}[{number}]") for number, pair in enumerate(zip(found, kept, strict=True))]
    else:
        return [] if found == (pytest.approx(kept, rel=1e-3) if isinstance(kept, float) else kept) else [where]
    return [place for pair in pairs for place in differences(*pair)]
