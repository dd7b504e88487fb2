"""Calls run one at a time, in the order in which they were made, whoever waits for them."""

import contextlib
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from tests.support.refusals import refusals
from zenc.errors import SynchronisationError
from zenc.runtime.call import call_queue
from zenc.runtime.call.call_queue import Job, Turn, Work, Worker
from zenc.runtime.cpu.channel import CallHeader, Channel

NOTHING = torch.empty(0)


@pytest.fixture
def worker() -> Worker:
    made = Worker("test")
    yield made
    assert made.drain(10)


def number(value: int, log: list[int] | None = None, seconds: float = 0.0):
    """Make a call that ends with ``value``."""

    def call() -> torch.Tensor:
        time.sleep(seconds)
        if log is not None:
            log.append(value)
        return torch.tensor(value)

    return call


def fails() -> torch.Tensor:
    raise ValueError("on purpose")


def test_calls_run_in_order(worker):
    log: list[int] = []
    works = [worker.submit(number(i, log, 0.001 * (i % 3))) for i in range(50)]
    assert int(worker.run(number(50, log))) == 50
    assert log == list(range(51))
    assert [int(work.wait()) for work in works] == list(range(50))


def test_one_call_at_a_time_whoever_makes_it(worker):
    running = threading.Semaphore(1)
    overlaps = []

    def call() -> torch.Tensor:
        overlaps.append(not running.acquire(blocking=False))
        time.sleep(0.0005)
        running.release()
        return NOTHING

    def caller() -> None:
        for i in range(20):
            worker.run(call) if i % 2 else worker.submit(call)

    threads = [threading.Thread(target=caller) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.run(call)
    assert len(overlaps) == 101 and not any(overlaps)


def test_who_waits_alone_runs_the_call_itself(worker):
    names = []

    def call() -> torch.Tensor:
        names.append(threading.current_thread().name)
        return NOTHING

    worker.run(call)
    worker.submit(call).wait()
    assert names == [threading.current_thread().name, "test"]


def test_errors_come_to_who_waits_and_the_next_call_runs(worker):
    failed = worker.submit(fails)
    following = worker.submit(number(3))
    for _ in range(2):
        with pytest.raises(ValueError, match="on purpose"):
            failed.wait()
    assert failed.is_completed() and int(following.wait()) == 3
    with pytest.raises(ValueError, match="on purpose"):
        worker.run(fails)
    assert int(worker.run(number(4))) == 4


def test_an_error_that_is_no_exception_ends_the_call_too(worker):
    def leaves() -> torch.Tensor:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        worker.submit(leaves).wait()
    assert int(worker.submit(number(5)).wait()) == 5


def test_a_wait_that_is_not_long_enough(worker):
    release = threading.Event()

    def call() -> torch.Tensor:
        release.wait(10)
        return torch.tensor(1)

    work = worker.submit(call)
    with pytest.raises(SynchronisationError, match="deadline"):
        work.wait(0.01)
    assert not work.is_completed()
    release.set()
    assert int(work.wait(10)) == 1


def test_futures(worker):
    def future_of(call: Callable[[], torch.Tensor]) -> torch.futures.Future[torch.Tensor]:
        work = Work()
        worker.submit(call, work)
        return work.get_future()

    assert int(future_of(number(7)).wait()) == 7
    with pytest.raises(Exception, match="on purpose"):
        future_of(fails).wait()
    chained = future_of(number(8, seconds=0.01)).then(lambda future: int(future.value()) + 1)
    assert chained.wait() == 9


def test_listeners_hear_of_every_end_once(worker):
    heard = []
    release = threading.Event()
    early = worker.submit(lambda: release.wait(10) and NOTHING)
    early.then(lambda work: heard.append(("early", work.is_completed())))
    release.set()
    early.wait()
    late = worker.submit(fails)
    with pytest.raises(ValueError):
        late.wait()
    late.then(lambda work: heard.append(("late", work.is_completed())))
    worker.run(number(0))
    assert sorted(heard) == [("early", True), ("late", True)]


def test_a_listener_that_fails_does_not_stop_the_worker(worker, caplog):
    heard = []
    release = threading.Event()
    work = worker.submit(lambda: release.wait(10) and NOTHING)
    work.then(lambda _: 1 // 0)
    work.then(heard.append)
    release.set()
    work.wait(10)
    assert int(worker.submit(number(6)).wait(10)) == 6
    assert heard == [work], "the others are told"
    work.then(lambda _: 1 // 0)
    assert caplog.text.count("a callback of a call failed") == 2


def test_who_waits_has_its_stream_wait_for_the_end_on_the_call_s_own(worker, monkeypatch):
    """Copies of a result may be under way on a GPU when the call has ended."""
    seen, nothing = mock.Mock(), contextlib.nullcontext()
    tensor: Any = SimpleNamespace(is_cuda=True, is_sparse=False, device="cuda:0", record_stream=seen.used_by)
    monkeypatch.setattr(call_queue, "_own_stream", lambda _: seen.own)
    for name, fake in {"current_stream": seen.caller, "device": nothing, "stream": nothing}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, fake=fake: fake)
    seen.sums.return_value, work = tensor, Work("cuda:0")
    assert worker.submit(call_queue.on_stream(seen.sums, tensor, True, work), work).wait() is tensor
    before, end = seen.caller.record_event(), seen.own.record_event()
    own, caller, call = mock.call.own, mock.call.caller, [mock.call.sums()]
    begun = [caller.record_event(), own.wait_event(before), mock.call.used_by(seen.own)]
    ended = [own.record_event(), caller.wait_event(end), mock.call.used_by(seen.caller)]
    assert seen.mock_calls[:7] == begun + call + ended


def test_a_callback_may_submit(worker):
    made = []
    release = threading.Event()
    work = worker.submit(lambda: release.wait(10) and NOTHING)
    work.then(lambda _: made.append(worker.submit(number(11))))
    release.set()
    work.wait(10)
    worker.run(number(0))
    assert int(made[0].wait(10)) == 11


def test_a_call_inside_a_call_is_refused(worker):
    """The error also comes where the caller runs its call itself, without the worker's thread."""

    def outer() -> torch.Tensor:
        return worker.run(number(1))

    for run in (worker.run, lambda call: worker.submit(call).wait(10)):
        with pytest.raises(SynchronisationError, match="reentrant-call"):
            run(outer)
    assert int(worker.run(number(2))) == 2


def test_a_part_of_a_call_is_done_at_once_and_one_of_no_call_in_turn(worker):
    """A callback is no part of a call, since the call has ended."""
    assert worker.within(lambda: 3) == 3
    done = []

    for run in (worker.run, lambda call, job: worker.submit(call, job).wait(10)):
        job: Job[None] = Job()
        job.then(lambda _: done.append(refusals(SynchronisationError, worker.within, lambda: 5)[0].id))
        run(lambda: done.append(worker.within(lambda: 4)), job)
        assert int(worker.run(number(2))) == 2
        assert done == [4, "reentrant-call"]
        done.clear()


def test_drain_ends_what_was_submitted():
    worker, log = Worker("test"), []
    assert worker.drain(1), "a worker that never ran anything"
    for i in range(5):
        worker.submit(number(i, log, 0.002))
    assert worker.drain(10) and log == list(range(5))
    worker.submit(number(5, log)).wait(10)
    assert worker.drain(10) and log[-1] == 5, "it can be used again"


def test_drain_has_an_end():
    worker, release = Worker("test"), threading.Event()
    worker.submit(lambda: release.wait(10) and NOTHING)
    started = time.perf_counter()
    assert not worker.drain(0.05)
    assert time.perf_counter() - started < 5
    release.set()
    assert worker.drain(10)


def test_a_wait_beside_a_call_that_is_not_over_lasts_for_all_of_its_exchanges() -> None:
    transport: Any = SimpleNamespace(rank=0)
    step: Any = SimpleNamespace(number=1)
    channel, before, asked = Channel("s", 2.0, transport, CallHeader(1, 0, 0)), Turn(), []
    before.exchanges, channel.turn._before = 2, before

    class Pending:
        def wait(self, seconds: float) -> torch.Tensor:
            asked.append(seconds)
            return NOTHING

    channel.wait(Pending(), 1, step, None)
    before.end()
    channel.wait(Pending(), 1, step, None)
    assert asked == [6.0, 2.0]
