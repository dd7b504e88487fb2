"""Ends of groups and processes: resources left, exits after a failed call, forks, and groups that are rebuilt."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.support.generations import Join, dies, lives, open_things
from zenc.errors import SynchronisationError
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions, room_of_machine


def held() -> tuple[int, int, int]:
    """Return files, threads, and mappings of memory that is shared or receives messages."""
    with open("/proc/self/maps") as maps:
        mapped = sum("memfd:zenc" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mapped


def groups(group: dist.ProcessGroup, ends: str, number: int, shared_memory: bool) -> list[tuple[int, int, int]]:
    """Return the resources held after each of some groups, which ``ends`` by a close, its destruction, or both."""
    found = []
    for trial in range(number):
        own = dist.new_group(list(range(group.size())))
        found.append(_used(own, trial, ends, shared_memory))
        if ends != "close":
            dist.destroy_process_group(own)
        dist.barrier()
        found[-1] = held()
        if ends == "close":
            dist.destroy_process_group(own)
    return found


def _used(own: dist.ProcessGroup, trial: int, ends: str, shared_memory: bool) -> tuple[int, int, int]:
    if ends == "attach":
        model = DistributedDataParallel(torch.nn.EmbeddingBag(50, 4, sparse=True), process_group=own)
        handle = zenc.attach(model, "balanced", shared_memory=shared_memory)
        model(torch.tensor([[trial % 50, own.rank()]])).sum().backward()
        handle.detach()
        return held()
    first = zenc.load("balanced", own, shared_memory=shared_memory)
    second = zenc.load("dense_ring", own, shared_memory=shared_memory)
    for collective in (first, second):
        assert collective.all_reduce(torch.ones(5)).tolist() == [own.size()] * 5
        if ends == "close":
            collective.close()
            collective.close()
    return held()


def closed(group: dist.ProcessGroup) -> tuple[list[str], list[float]]:
    """Return errors of calls after a close, and sums of collectives that go on or were loaded anew."""
    own = dist.new_group(list(range(group.size())))
    model = DistributedDataParallel(torch.nn.EmbeddingBag(5, 2, sparse=True), process_group=own)
    first, second = zenc.attach(model, "balanced").collective, zenc.load("balanced", own).rebuild(own)
    first.close()
    sums = [float(second.all_reduce(torch.ones(3))[0])]
    second.close()
    errors = [_error(second), _error(first)]
    third = zenc.load("balanced", own)
    sums.append(float(third.all_reduce(torch.ones(3))[0]))
    dist.destroy_process_group(own)
    errors.append(_error(third))
    return errors, sums


def _error(collective: Any) -> str:
    try:
        collective.all_reduce(torch.ones(3))
    except zenc.SynchronisationError as error:
        return f"{error.diagnostics[0].id}: {error.diagnostics[0].message}"
    return "none"


JOBS = "tests.runtime.test_lifetimes:"
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("ends", ["destroy", "close", "attach"])
def test_groups_leave_nothing(two: Any, ends: str, shared_memory: bool) -> None:
    for found in two.run(JOBS + "groups", ends=ends, number=8, shared_memory=shared_memory):
        assert max(found[2:]) <= max(found[:2]), found


def test_what_is_closed_says_so_and_what_is_not_goes_on(two: Any) -> None:
    for errors, sums in two.run(JOBS + "closed"):
        assert all(error.startswith("group-broken: this collective was closed") for error in errors), errors
        assert sums == [2.0, 2.0]


SCRIPT = """
import json, os, sys, time, torch, torch.distributed as dist, zenc
from datetime import timedelta
def forked():
    found = []
    for kind, way in json.loads(sys.argv[2]):
        path, ranks = f"{sys.argv[1]}/{len(found)}", []
        for rank in range(2):
            ranks.append(os.fork())
            if ranks[rank] == 0:
                return path, rank, kind, way
        found.append([(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]), time.time()) for each in ranks])
    print(json.dumps(found))
    sys.exit()
path, rank, kind, way = forked()
dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2, timeout=timedelta(seconds=20))
collective = zenc.load("balanced", deadline=60)
collective.all_reduce(torch.ones(100))
try:
    if kind == "differs":
        collective.all_reduce(torch.ones(4 + rank))
    elif rank == 1:
        os.kill(os.getpid(), 9)
    else:
        collective.all_reduce(torch.ones(100))
except zenc.SynchronisationError:
    with open(f"{path}-{rank}", "w") as file:
        file.write(str(time.time()))
    if way == "uncaught":
        raise
if way == "destroy":
    dist.destroy_process_group()
if way == "exit":
    sys.exit(7)
"""
SECONDS = 6
"""The longest that a process may take to end: it waits for nothing but messages on their way."""
STATUS = {"falls off": 0, "destroy": 0, "exit": 7, "uncaught": 1}


def outcomes(directory: Path, cases: list[tuple[str, str]]) -> list[list[tuple[int, bool, bool]]]:
    """Let two ranks a case, a kind and a way, end in that way after a failed call of that kind.

    They are forks of an interpreter that has imported torch, and end as it would. Return status, failure, and whether
    rank 0 ended in time.
    """
    directory.mkdir(exist_ok=True)
    command = [sys.executable, "-c", SCRIPT, str(directory), json.dumps(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100 * len(cases))
    print(done.stderr[-2000:])
    found = []
    for number, ends in enumerate(json.loads(done.stdout)):
        failures = [directory / f"{number}-{rank}" for rank in range(2)]
        failed = [float(each.read_text()) if each.exists() else 0.0 for each in failures]
        found.append(
            [(status, at > 0, at > 0 and (rank > 0 or ended - at < SECONDS))
             for rank, ((status, ended), at) in enumerate(zip(ends, failed, strict=True))]
        )  # fmt: skip
    return found


def expected(kind: str, way: str) -> list[tuple[int, bool, bool]]:
    ended = (STATUS[way], True, True)
    return [ended, (-signal.SIGKILL, False, False) if kind == "dies" else ended]


def test_a_process_ends_in_order_after_a_call_that_failed(tmp_path: Path) -> None:
    cases = [("differs", "falls off"), ("differs", "destroy"), ("dies", "uncaught"), ("dies", "exit")]
    assert outcomes(tmp_path, cases) == [expected(*case) for case in cases]


@pytest.mark.slow
def test_eighty_processes_end_in_order(tmp_path: Path) -> None:
    cases = [(kind, way) for _ in range(5) for kind in ("differs", "dies") for way in STATUS]
    assert outcomes(tmp_path, cases) == [expected(*case) for case in cases]


def test_a_fork_does_not_hide_that_its_parent_has_ended() -> None:
    """A child that lives on, such as a data loader's worker, has none of its parent's connections."""
    here, there = socket.socketpair()
    parent = os.fork()
    if parent == 0:
        here.close()
        transport = SocketTransport(hub_functions(), room_of_machine(), 1, [there.detach(), -1])
        transport.send(0, 1, torch.ones(3, dtype=torch.uint8))
        if os.fork() == 0:
            time.sleep(30)
        os._exit(0)
    there.close()
    transport = SocketTransport(hub_functions(), room_of_machine(), 0, [-1, here.detach()])
    assert transport.receive(1, 1, torch.empty(0)).wait(20).tolist() == [1, 1, 1]
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="given up, or has ended"):
        transport.receive(1, 1, torch.empty(0)).wait(20)
    assert time.monotonic() - started < 10
    os.waitpid(parent, 0)
    transport.close()


UNITS, CALLS = 64, 3
DEADLINE = 20.0


def gradient(member: int, group: int, call: int) -> torch.Tensor:
    """Return small integers, of which float32 sums are exact."""
    chance = torch.Generator().manual_seed(100 * member + 10 * group + call)
    return torch.randint(-50, 51, (UNITS,), generator=chance).float()


def over_a_death(
    member: int,
    join: Join,
    groups: list[list[int]],
    scheme: str,
    dying: int,
    shape: tuple[int, ...] = (UNITS,),
    **params: float,
) -> Any:
    """Return sums in each group, residuals at its start and end, and the error of the call in which a rank died."""
    found: dict[str, Any] = {"sums": [], "kept": [], "counts": []}
    collective = None
    for number, members in enumerate(groups):
        if member not in members:
            continue
        join(number)
        collective = collective.rebuild() if collective else zenc.load(scheme, deadline=DEADLINE, params=params)
        begun = kept(collective)
        calls = [gradient(member, number, call).view(shape) for call in range(CALLS)]
        found["sums"].append([collective.all_reduce(each, name="w").clone() for each in calls])
        found["kept"].append((begun, kept(collective)))
        found["counts"].append({n: c[:2] for n, c in collective.keeper.counts().items()} if collective.keeper else {})
        if number + 1 < len(groups):
            found["died"] = failing(collective, member == dying, shape)
    found["decisions"] = [str(each.scheme) for each in collective.decisions] if collective else []
    return found


def kept(collective: zenc.Collective) -> torch.Tensor:
    known = collective.keeper is not None and "w" in collective.keeper.counts()
    return collective.residual("w").flatten() if known else torch.zeros(UNITS)


def failing(collective: zenc.Collective, dying: bool, shape: tuple[int, ...]) -> str:
    """Return the id of the error of a call during which one rank dies."""
    if dying:
        dies()
    try:
        collective.all_reduce(torch.ones(shape), name="w")
    except SynchronisationError as error:
        return error.diagnostics[0].id
    return "nothing failed"


def again_and_again(member: int, join: Join, groups: list[list[int]], times: int) -> Any:
    """Return sums over a group that is broken and rebuilt repeatedly, and open files after each time.

    Process 1 finds out only when it rebuilds.
    """
    group = join(0)
    collective = zenc.load("balanced", group, deadline=DEADLINE)
    found = []
    for _ in range(times):
        work = collective.all_reduce(torch.ones(UNITS), async_op=True)  # so that there are threads
        total = float(work.wait().sum())
        if member == 0:
            collective.communicator.abort(SynchronisationError([]), None)
        collective = collective.rebuild(group)
        del work
        open_now, until = open_things(), time.monotonic() + 10
        while found and open_now[0] > found[0][1] and time.monotonic() < until:
            time.sleep(0.01)  # threads of the old group end when they have their turn
            open_now = open_things()
        found.append((total, *open_now))
    return found


FEWER, ANOTHER, MORE = [(0, 1, 2), (0, 2)], [(0, 1, 2), (2, 3, 0)], [(0, 1), (0, 2, 3)]


@pytest.mark.parametrize("groups", [FEWER, ANOTHER, MORE], ids=["fewer", "another", "more"])
def test_a_rank_is_killed_and_the_others_go_on(groups: list[tuple[int, ...]]) -> None:
    found = lives(JOBS + "over_a_death", groups, scheme="balanced", dying=1)
    assert found.keys() == {member for group in groups for member in group} - {1}
    for number, members in enumerate(groups):
        expected = [sum(gradient(member, number, call) for member in members) for call in range(CALLS)]
        for member in set(members) - {1}:
            sums = found[member]["sums"][number if member in groups[0] else 0]
            assert torch.equal(torch.stack(sums), torch.stack([torch.as_tensor(each) for each in expected]))
    assert {found[member]["died"] for member in set(groups[0]) - {1}} <= {"peer-lost"}


@pytest.mark.parametrize(
    ("groups", "scheme", "beta"), [(FEWER, "topk_a2a", 1.0), (ANOTHER, "gtop_k", 1.0), (ANOTHER, "demo", 0.999)]
)
def test_nothing_of_a_survivor_is_lost(groups: list[tuple[int, ...]], scheme: str, beta: float) -> None:
    """Sums and residuals of the second group are the survivors' residuals, which may decay, and gradients."""
    found = lives(JOBS + "over_a_death", groups, scheme=scheme, dying=1)
    survivors = [member for member in groups[1] if member in groups[0]]
    for member in survivors:
        (_, ended), (begun, _) = found[member]["kept"]
        assert ended.any() and torch.equal(ended, begun), "the call that failed has changed nothing"
    last = [found[member] for member in groups[1]]
    assert all(each["counts"][-1] == {"w": ((UNITS,), 2 * CALLS)} for each in last), "a new rank counts on, too"
    due = sum(each["kept"][-1][0] for each in last)
    for call, found_sum in enumerate(last[0]["sums"][-1]):
        due = beta * (due + sum(gradient(member, 1, call) for member in groups[1]) - found_sum)
    after = sum(each["kept"][-1][1] for each in last)
    assert torch.allclose(after, due, rtol=0, atol=1e-4 if scheme == "demo" else 0)


@pytest.mark.parametrize("groups", [FEWER, ANOTHER], ids=["fewer", "another"])
def test_what_all_have_sent_is_that_of_those_that_are_there(groups: list[tuple[int, ...]]) -> None:
    """After a rank has died results are again the sum of what each rank of the group has sent."""
    found = lives(JOBS + "over_a_death", groups, scheme="ef21", dying=1, density=0.2)
    last = [found[member] for member in groups[1]]
    sums = [each["sums"][-1][-1] for each in last]
    assert all(torch.equal(each, sums[0]) for each in sums) and sums[0].any()
    assert torch.equal(sums[0], -sum(each["kept"][-1][1] for each in last))


def test_all_ranks_go_on_in_one_basis_also_a_new_one() -> None:
    """Sums of matrices of low rank are equal bits after a rebuild, and what they miss is kept."""
    found = lives(JOBS + "over_a_death", ANOTHER, scheme="power_sgd", dying=1, shape=(8, 8), r=1)
    last = [found[member] for member in ANOTHER[1]]
    sums = [torch.stack(each["sums"][-1]) for each in last]
    assert all(torch.equal(each, sums[0]) for each in sums) and sums[0][0].count_nonzero() == UNITS
    given = sum(gradient(member, 1, call) for member in ANOTHER[1] for call in range(CALLS))
    before, after = (sum(each["kept"][-1][at] for each in last) for at in (0, 1))
    assert torch.allclose(sums[0].sum(0).flatten() + after, before + given, atol=1e-3)


def test_nothing_stays_open() -> None:
    for counted in lives(JOBS + "again_and_again", [(0, 1)], times=4).values():
        assert [total for total, *_ in counted] == [2.0 * UNITS] * 4
        (_, threads, files), *_, (_, last_threads, last_files) = counted[1:]
        assert last_threads <= threads and last_files <= files, counted
