"""``benchmarks/strategies``: the page is made of its JSON, and no choice is worse than simple ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zenc
from benchmarks.strategies import __main__ as strategies
from benchmarks.strategies import espresso, groups, oscar, others, peers
from benchmarks.strategies.traces import models
from tests.support.local import collectives, run_all

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
    dimensions = ("on the GPU alone", *espresso.CRIPPLED, *espresso.UNSEARCHED)
    assert all(row[name] >= 1 - 1e-9 for row in COMMITTED["crippled"] for name in dimensions)
    for row in COMMITTED["times"]:
        assert row["selection ms"] <= row["selection published"] and row["offload ms"] <= row["offload published"]
