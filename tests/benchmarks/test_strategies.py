"""``benchmarks/strategies``: the page is made of its JSON, and no choice is worse than simple ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import zenc
from benchmarks.strategies import __main__ as strategies
from benchmarks.strategies import espresso, groups, oscar, others, peers
from benchmarks.strategies.page import with_results
from benchmarks.strategies.traces import models, published, trace
from tests.support.local import collectives, run_all

COMMITTED: dict[str, Any] = json.loads(strategies.JSON.read_text(encoding="utf-8"))


def test_the_page_is_what_its_json_says() -> None:
    page = strategies.PAGE.read_text(encoding="utf-8")
    assert with_results(page, COMMITTED) == page
    assert COMMITTED["published"] == published()


def test_a_case_of_each_table_is_computed_again() -> None:
    """The small ones; `make strategies` computes all, in half a minute."""
    lstm = next(row for row in espresso.rows_of("LSTM"))
    assert lstm == pytest.approx(next(row for row in COMMITTED["espresso"] if row["model"] == "LSTM"))
    assert groups.row("LSTM", "dgc") == pytest.approx(next(r for r in COMMITTED["groups"] if r["model"] == "LSTM"))
    assert others.byteps()["steps"] == pytest.approx(COMMITTED["byteps"]["steps"])
    assert peers.rows_of("LSTM")[0] == pytest.approx(next(r for r in COMMITTED["peers"] if r["model"] == "LSTM"))
    assert groups.compared()[0] == pytest.approx(COMMITTED["mergecomp"][0])


def test_no_choice_is_worse_than_nothing_everything_or_two_groups() -> None:
    cases = COMMITTED["never worse"]
    assert len(cases) == len(models()) * len(espresso.TOPOLOGIES) * len(espresso.COMPRESSORS)
    worse = [case for case in cases if case["best"] > min(case["plain"], case["all"], case["two groups"])]
    assert worse == []


def test_no_crippled_search_is_better_than_the_whole_one() -> None:
    dimensions = ("on the GPU alone", *espresso.CRIPPLED, *espresso.UNSEARCHED)
    better = [row for row in COMMITTED["crippled"] if any(row[name] < 1 - 1e-9 for name in dimensions)]
    assert better == []


def test_choices_take_no_longer_than_published() -> None:
    """As they were measured when the page was written."""
    slow = [r["model"] for r in COMMITTED["times"] if r["selection ms"] > r["selection published"]]
    slow += [r["model"] for r in COMMITTED["times"] if r["offload ms"] > r["offload published"]]
    assert slow == []


def test_traces_read_modulo_are_shorter() -> None:
    assert trace("BERT-base").computing > trace("BERT-base", "modulo").computing
    assert len(trace("BERT-base").tensors) == 199


@pytest.mark.parametrize("name", peers.PATHS)
def test_each_peer_is_options_of_the_tree(name: str) -> None:
    found = peers.options_of(peers.PATHS[name])
    assert len(found) == len(peers.PATHS[name])


@pytest.mark.parametrize("ranks", [4, 16])
def test_conditions_of_topka2a_are_the_published_ones(ranks: int) -> None:
    found = others.condition(ranks)
    assert found["before all-gather from"] == pytest.approx(found["from published"], rel=1e-3)
    assert found["before dense up to"] == pytest.approx(0.5, rel=1e-3)


def test_oscar_is_simulated_from_the_messages_that_were_counted() -> None:
    of, bits = COMMITTED["oscar"], 12
    row = next(row for row in oscar.simulated(of) if row["bits"] == bits)
    assert row == pytest.approx(next(row for row in of["rows"] if row["bits"] == bits))
    slowest = sum(max(step) for step in of["messages"]["12"]["by bytes"])
    dense = 2 * (oscar.RANKS - 1) * -(-of["values"] // oscar.RANKS) * 4
    assert row["faster"] == pytest.approx(dense / slowest, rel=0.02), "without latency a step takes its longest message"


def test_the_recorder_joins_the_packets_of_a_message() -> None:
    """Of two ranks, as the real calls send: the sums of its counts are the bytes of the calls' statistics."""
    gradients = torch.randn(2, 40_000)
    recorder = oscar.Recorder()
    ranks = collectives(zenc.compile("dense_ring", ranks=2), 2, on_send=recorder.on_send)
    run_all(ranks, list(gradients), "sum")
    counts = recorder.counts()
    assert len(counts) == 2 and sum(map(sum, counts)) == sum(rank.stats["bytes_sent"] for rank in ranks)
