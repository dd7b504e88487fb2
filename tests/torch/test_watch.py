"""Views of a handle on training on real gloo processes: numbers that add up, rows that nest, metrics that arrive."""

import json
import logging
from typing import Any

import pytest
import torch
import torch.distributed as dist
from prometheus_client import CollectorRegistry
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import zenc
from tests.support.ranks import RanksFailed
from tests.torch.jobs import ROWS, WIDTH, wrapped
from tests.torch.test_handle import step
from zenc.errors import TensorError, ZencError
from zenc.torch.parameters import UnusedWatch
from zenc.torch.records.metrics import log_for
from zenc.torch.records.timeline import BESIDE


def summaries(group: dist.ProcessGroup) -> tuple[dict[str, Any], dict[str, Any], str, list[Any]]:
    """Return summaries of this rank, and of all, as JSON; as a table; and the stats of each step."""
    ddp = wrapped(group)
    handle = zenc.attach(ddp, "balanced", deadline=30, join=0)
    assert "nothing was synchronised yet" in str(handle.summary())
    steps = []
    for number in range(3):
        step(ddp, group.rank(), number)
        steps.append(handle.stats)
    mine, every = handle.summary(), handle.summary(all_ranks=True)
    assert "\n" not in repr(mine)
    return json.loads(json.dumps(mine.to_json())), every.to_json(), str(every), steps


def traced(group: dist.ProcessGroup, path: str, beside: str, scheme: str) -> int:
    """Run two steps in a timeline, one before and one after; return the calls in it."""
    ddp = wrapped(group)
    handle = zenc.attach(ddp, scheme, deadline=30, join=0)
    step(ddp, group.rank(), 0)
    before = max(stats["call"] for stats in handle.stats.values())
    with handle.trace(path, beside=beside):
        for number in (1, 2):
            step(ddp, group.rank(), number)
    calls = max(stats["call"] for stats in handle.stats.values()) - before
    step(ddp, group.rank(), 3)
    return calls


def trace_beside_nothing(group: dist.ProcessGroup, path: str) -> None:
    with zenc.attach(wrapped(group), "balanced", deadline=30).trace(path, beside=path):
        pass


def profiled_ranges(group: dist.ProcessGroup) -> list[str]:
    """Return the names of zenc's ranges that torch's profiler sees, of a call that its own thread makes."""
    collective = zenc.load("balanced", group, deadline=30)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        collective.all_reduce(torch.ones(8), name="words")
    return sorted({event.name for event in seen.events() if event.name.startswith("zenc")})


class Scalars:
    """A SummaryWriter that keeps scalars."""

    def __init__(self) -> None:
        self.found: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, global_step: int) -> None:
        self.found.append((tag, value, global_step))


class Run:
    """A run of Weights & Biases that keeps its log."""

    def __init__(self) -> None:
        self.found: list[tuple[dict[str, float], int]] = []

    def log(self, data: dict[str, float], step: int) -> None:
        self.found.append((data, step))


class LightningLogger(Run):
    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.found.append((metrics, step))


def logged(group: dist.ProcessGroup) -> tuple[list[Any], list[Any], list[Any], dict[str, float | None], list[Any]]:
    ddp, scalars, run, lightning, registry = wrapped(group), Scalars(), Run(), LightningLogger(), CollectorRegistry()
    handle = zenc.attach(ddp, "balanced", deadline=30, join=0)
    handle.log_to(scalars)
    handle.log_to(run, every=2, step=lambda: 100 + len(steps), prefix="sync")
    handle.log_to(lightning)
    handle.log_to(registry)
    steps: list[Any] = []
    for number in range(4):
        step(ddp, group.rank(), number)
        steps.append(handle.stats)
    handle.detach()
    labels = {"parameter": "words.weight"}
    samples = {name: registry.get_sample_value(name, labels) for name in ("zenc_calls_total", "zenc_sent_bytes_total")}
    return scalars.found, run.found, lightning.found, samples, steps


def restarted(group: dist.ProcessGroup, path: str) -> tuple[list[Any], list[Any], list[str], int, int]:
    """Save a run and go on from it; return decisions, calls and samples before and after."""
    ddp, rank = wrapped(group), group.rank()
    first = zenc.attach(ddp, "auto", deadline=60, join=0, profiler=zenc.Profiler(every=4))
    for number in range(20):
        step(ddp, rank, number)
    if rank == 0:
        torch.save({"zenc": first.state_dict()}, path)
    dist.barrier(group)
    samples = first.state.profiler.profiles()["words.weight"].recorded.steps
    again = wrapped(group)
    second = zenc.attach(again, "auto", deadline=60, join=0, profiler=zenc.Profiler(every=4))
    second.load_state_dict(torch.load(path, weights_only=True)["zenc"])
    ran = []
    for number in range(2):
        step(again, rank, number)
        ran += [stats["choice"]["scheme"] for stats in second.stats.values()]
    decided = [[decision.to_json() for decision in handle.decisions] for handle in (first, second)]
    assert second.state_dict()["choices"].keys() == first.state_dict()["choices"].keys()
    return *decided, ran, samples, second.state.profiler.profiles()["words.weight"].recorded.steps


def states_that_differ(group: dist.ProcessGroup) -> str:
    handle = zenc.attach(wrapped(group), "balanced", deadline=30)
    try:
        handle.load_state_dict({**handle.state_dict(), "scheme": str(group.rank())})
    except zenc.SynchronisationError as error:
        return error.diagnostics[0].id
    return ""


JOBS = "tests.torch.test_watch:"
NAMES = ("words.weight", "bags.weight")


class Checkpointed(nn.Module):
    """A table in a checkpoint, whose graph isn't part of the output's, and one whose rows are not used."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.idle = nn.Embedding(4, 2, sparse=True), nn.Embedding(4, 2, sparse=True)
        self.require_backward_grad_sync = True

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return checkpoint(
            lambda at, one: self.seen(at) * one, ids, torch.ones((), requires_grad=True), use_reentrant=True
        )


def test_a_table_that_was_called_is_used_whatever_the_graph_shows():
    model, ids = Checkpointed(), torch.tensor([1, 2])
    watch = UnusedWatch(model, {"seen": [model.seen]})
    assert model(ids).requires_grad
    watch.remove()
    UnusedWatch(model, {"seen": [model.seen], "idle": [model.idle]})
    with pytest.raises(TensorError, match="'idle' took no part"):
        model(ids)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_summaries_are_the_sums_of_what_calls_counted(four, size):
    found = four.run(JOBS + "summaries", size=size)
    for rank, (mine, every, shown, steps) in enumerate(found):
        assert set(mine["parameters"]) == set(NAMES) and mine["total"]["calls"] == 6
        for name in NAMES:
            totals = mine["parameters"][name]
            for key in ("bytes_sent", "bytes_received", "seconds"):
                assert totals[key] == pytest.approx(sum(stats[name][key] for stats in steps))
            assert totals["bytes_ddp_dense"] == pytest.approx(3 * 2 * (size - 1) / size * ROWS * WIDTH * 4)
            rows = sum(stats[name]["units_in"] for stats in steps)
            assert totals["bytes_ddp_sparse"] == (size - 1) * rows * (8 + 4 * WIDTH)
        assert every["by_rank"][rank]["bytes_sent"] == mine["total"]["bytes_sent"]
        assert every["total"]["bytes_sent"] == every["total"]["bytes_received"] and every["ranks"] == size
        assert every["saved"]["dense"] == every["total"]["bytes_ddp_dense"] - every["total"]["bytes_sent"]
        assert 0 <= mine["total"]["waiting_share"] < 1
        assert {each["rank"] for each in every["slowest"]} == (set(range(size)) if size > 1 else set())
        assert shown.splitlines()[0] == ("balanced, rank 0 of 1" if size == 1 else f"balanced, all {size} ranks")
        assert ("sent than by DDP's dense all-reduce" in shown) == ("waited for: rank" in shown) == (size > 1)


@pytest.mark.parametrize("scheme", ["balanced", "holders", "auto"])
def test_a_timeline_of_real_steps_beside_the_predicted_one(four, tmp_path, scheme):
    path, beside = tmp_path / "steps.json", tmp_path / "predicted.json"
    predicted = {"ph": "X", "name": "push 1", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1.0}
    beside.write_text(json.dumps({"traceEvents": [predicted]}))
    calls = four.run(JOBS + "traced", size=3, path=str(path), beside=str(beside), scheme=scheme)
    events = json.loads(path.read_text())["traceEvents"]
    assert events[0] == predicted
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} > {"rank 0", "rank 1", "rank 2"}
    always = {"pack", "push 1", "expand"} | (set() if scheme == "auto" else {"pull 1"})  # a candidate has no pull
    for rank in range(3):
        row = [e for e in events if e["ph"] == "X" and e["pid"] == 1 and e["tid"] % BESIDE == rank]
        whole = [e for e in row if e["name"].startswith("call ")]
        assert len(whole) == calls[rank] >= 4 and {e["args"]["tensor"] for e in whole} == set(NAMES)
        for call in whole:
            parts = [e for e in row if e["args"]["call"] == call["args"]["call"] and e is not call]
            assert {e["tid"] for e in parts} == {call["tid"]}
            assert always <= {e["name"] for e in parts}
            assert all(call["ts"] <= e["ts"] and e["ts"] + e["dur"] <= call["ts"] + call["dur"] for e in parts)


def test_a_file_that_is_no_timeline(two, tmp_path):
    (tmp_path / "notes.txt").write_text("no JSON")
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "trace_beside_nothing", size=1, path=str(tmp_path / "notes.txt"))
    assert "error[bad-trace]" in str(caught.value.errors[0])


def test_ranges_in_the_profiler_of_torch(two):
    names = ["call", "expand", "merge", "pack", "pull 1", "push 1"]
    assert two.run(JOBS + "profiled_ranges") == [[f"zenc {name} words" for name in names]] * 2


def test_metrics_come_to_the_loggers_that_people_have(two):
    for scalars, run, lightning, prometheus, steps in two.run(JOBS + "logged"):
        sent = [stats["words.weight"]["bytes_sent"] for stats in steps]
        assert [(v, n) for tag, v, n in scalars if tag == "zenc/words.weight/bytes_sent"] == list(
            zip(sent, range(4), strict=True)
        )
        both = [sum(stats[name]["bytes_sent"] for name in NAMES) for stats in steps]
        assert [(metrics["zenc/bytes_sent"], n) for metrics, n in lightning] == list(zip(both, range(4), strict=True))
        assert [(metrics["sync/bytes_sent"], n) for metrics, n in run] == [(both[0], 100), (both[2], 102)]
        assert 0 < run[0][0]["sync/bags.weight/seconds_waiting"] < run[0][0]["sync/seconds"]
        assert prometheus == {"zenc_calls_total": 4, "zenc_sent_bytes_total": sum(sent)}


@pytest.mark.parametrize(("writer", "every"), [("runs/1", 1), (None, 1), (logging.getLogger(), 1), (print, 0)])
def test_what_metrics_are_not_written_to(writer, every):
    with pytest.raises(ZencError, match="unknown-writer"):
        log_for(writer, every, None, "zenc")


def test_a_run_goes_on_from_what_was_decided_and_counted(two, tmp_path):
    for first, second, ran, before, after in two.run(JOBS + "restarted", path=str(tmp_path / "checkpoint.pt")):
        assert {each["tensor"] for each in first} == set(NAMES)
        assert [(each["tensor"], each["call"], each["scheme"]) for each in second] == [
            (each["tensor"], each["call"], each["scheme"]) for each in first
        ]
        last = {each["tensor"]: each["scheme"] for each in first}
        assert set(ran) == set(last.values()), "nothing is tried again"
        assert (before, after) == (5, 6)


def test_ranks_that_would_go_on_from_different_states(two):
    assert two.run(JOBS + "states_that_differ") == ["different-states"] * 2


@pytest.mark.parametrize("spoil", ["chosen", "models", "decisions", "records"])
def test_a_state_of_a_decision_that_can_not_be(spoil):
    from zenc.scheme.model import Settings
    from zenc.select.online import Model, Records, Selector

    deciding = Selector("words", Settings(), ("balanced", "agsparse"), Records())
    assert deciding.state() is None
    deciding.look([Model(1.0, 1.0), Model(2.0, 2.0)])
    while deciding.state() is None:
        deciding.begun()
        deciding.ended(1.0)
    state = deciding.state()
    again = Selector("words", Settings(), ("balanced", "agsparse"), Records())
    assert again.restore(json.loads(json.dumps(state))) and again.state() == state
    assert not Selector("words", Settings(), ("balanced", "zen"), Records()).restore(state)
    state[spoil] = {"chosen": 7, "models": [[1.0, 1.0]], "decisions": [{}], "records": [[5, 1.0, 1.0, 1.0]]}[spoil]
    with pytest.raises((KeyError, TypeError, ValueError)):
        Selector("words", Settings(), ("balanced", "agsparse"), Records()).restore(state)
