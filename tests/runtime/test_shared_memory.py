"""Ranks of one host that exchange through memory: selection, bits of sums, reuse of memory, and failures.

``test_gloo`` and ``test_shipped`` compare bits of sums with the wire's for all combinations.
"""

import errno
import gc
import importlib
import logging
import mmap
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import pairwise, product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.runtime.jobs import DEADLINE, bits, both_ways
from tests.support.cases import sparse_tensor
from tests.support.meeting import Meeting, communicator_of
from tests.support.ranks import Ranks, RanksFailed
from zenc.errors import TensorError
from zenc.runtime.group.host_collectives import gather_equal
from zenc.runtime.transports import shared_memory
from zenc.runtime.transports.block_pool import IDLE_SECONDS, BlockPool, block_bytes
from zenc.runtime.transports.shared_memory import OwnFile, PeerFile, ring_functions
from zenc.runtime.transports.shared_transport import SharedTransport, sharing


def peers(collective: zenc.Collective) -> list[int]:
    """Return the ranks with which this one shares memory."""
    transport = collective.communicator.transport
    return sorted(transport.links) if isinstance(transport, SharedTransport) else []


def mixed(group: dist.ProcessGroup, schemes: list[str]) -> tuple[list[int], list[tuple[str, str]]]:
    """Sum on two hosts of two ranks; return the ranks sharing memory, and bits of sums both ways."""
    rank, size = group.rank(), group.size()
    real = shared_memory.host
    shared_memory.host = lambda: bytes([1 + rank // 2]) * 16
    try:
        other = dist.new_group(list(range(size)))  # a communicator of its own
        found = []
        for name in schemes:
            params = {"gpus": 2} if name == "zen_cluster" else {}
            ways = both_ways(zenc.compile(name, ranks=size, params=params), other)
            tensor = sparse_tensor("random", rank, size, 4000, 16, torch.float32, 3)
            shared, wire = (bits(way.all_reduce(tensor)) for way in ways)
            found.append((shared, wire))
        return peers(ways[0]), found
    finally:
        shared_memory.host = real


def killed(group: dist.ProcessGroup, deadline: float) -> tuple[bool, bool, str, float]:
    """Kill rank 1 in a call; return whether memory was shared and messages long, the error, and its seconds."""
    collective = zenc.load("balanced", group, deadline=deadline)
    tensor = torch.ones(1_000_000)
    collective.all_reduce(tensor)
    long = collective.stats["bytes_sent"] > 1_000_000
    started = time.perf_counter()
    if group.rank() == 1:
        send = collective.communicator.transport.send
        collective.communicator.transport.send = lambda *packet: os.kill(os.getpid(), signal.SIGKILL) or send(*packet)
    try:
        collective.all_reduce(tensor)
    except zenc.ZencError as error:
        return bool(peers(collective)), long, str(error), time.perf_counter() - started
    return bool(peers(collective)), long, "", DEADLINE


SIZES = st.lists(st.integers(1, 40_000), max_size=20)


def look(pool: BlockPool) -> None:
    """Ask for a room after a minute."""
    pool._looked -= 2 * IDLE_SECONDS
    pool.room(1)


@settings(deadline=None)
@given(SIZES, SIZES)
def test_only_pages_of_free_blocks_go_back(kept: list[int], gone: list[int]) -> None:
    returned: list[tuple[int, int]] = []
    pool = BlockPool(memoryview(bytearray(1 << 21)), give_back=lambda at, size: returned.append((at, at + size)))
    rooms = [pool.room(size).fill_(number) for number, size in enumerate(kept)]
    free = [pool.room(size) for size in gone]
    places = sorted((held.at, held.at + held.of) for held in pool._borrowed.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    del free
    look(pool)
    assert returned == [], "they have been taken a moment ago"
    look(pool)
    in_use = [(held.at, held.at + held.of) for held in pool._borrowed.values()]
    assert all(end <= begin or until <= at for at, end in returned for begin, until in in_use)
    assert all(at % mmap.PAGESIZE == end % mmap.PAGESIZE == 0 for at, end in returned)
    assert len(returned) >= sum(size >= 2 * mmap.PAGESIZE for size in gone), "a page lies in each of these whole"
    assert all(bool(room.eq(number).all()) for number, room in enumerate(rooms))


def test_blocks_keep_their_pages_as_long_as_they_are_taken() -> None:
    memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pool = BlockPool(memoryview(memory), give_back=partial(memory.madvise, mmap.MADV_DONTNEED))
    size = 100_000
    for _ in range(3):
        pool.room(size).fill_(7)
        look(pool)
        assert bytes(memory).count(7) == size
    look(pool)
    assert bytes(memory).count(7) < 2 * mmap.PAGESIZE, "all but parts of pages"
    pool.room(size).fill_(8)
    assert bytes(memory).count(8) == size, "the block is taken again"


JOBS = "tests.runtime.test_shared_memory:"
NOTHING = torch.empty(0, dtype=torch.uint8)


def linked(size: int = 2, wanted: tuple[bool, ...] | None = None) -> list[Any]:
    """Return the transports of ranks of this process; those that share nothing are no ``SharedTransport``."""
    meeting = Meeting(size)

    def of(rank: int) -> Any:
        communicator = communicator_of(meeting, rank)
        return sharing(
            communicator.transport, partial(gather_equal, communicator), 60.0, wanted is None or wanted[rank]
        )

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(of, range(size)))


WAYS = (AttributeError, *(partial(OSError, code) for code in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)))
CALLS = (
    "os.memfd_create", "os.pidfd_open", "os.sched_getaffinity", "os.ftruncate", "fcntl.fcntl",
    "zenc.runtime.transports.shared_memory.host",
)  # fmt: skip
"""System calls that a kernel, a container's filter, or a Python of older headers may lack."""


def files_of_memory() -> list[str]:
    """Return the files of this process that ``OwnFile`` and ``PeerFile`` open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(each for each in found if "memfd:zenc" in each or "pidfd" in each)


@pytest.mark.one_in(11)
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("call", "way"),
    [*product(CALLS[:2], range(len(WAYS))), *((call, place % 4) for place, call in enumerate(CALLS[2:]))],
)
def test_what_a_machine_lacks_is_done_without(monkeypatch, call, way, ranks):
    """Ranks that lack shared memory in any way take the wire, and no file stays open."""
    ring_functions()
    owner, _, name = call.rpartition(".")
    real, seen, lock = getattr(importlib.import_module(owner), name), set[int](), threading.Lock()

    def missing(*arguments: Any) -> Any:
        with lock:
            seen.add(threading.get_ident()) if len(seen) < ranks else None
        if threading.get_ident() in seen:
            raise WAYS[way]("missing")
        return real(*arguments)

    gc.collect()
    before = files_of_memory()
    monkeypatch.setattr(importlib.import_module(owner), name, missing)
    transports = linked(3)
    monkeypatch.undo()
    sharing_ranks = [rank for rank, each in enumerate(transports) if isinstance(each, SharedTransport)]
    assert len(sharing_ranks) == (3 if name == "sched_getaffinity" else 2 if ranks == 1 else 0)
    for each in transports:
        each.close()
    del transports, each
    gc.collect()
    assert files_of_memory() == before


def test_who_shares_with_whom_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="zenc"):
        linked(3)
    assert sorted(caplog.messages)[:1] == ["rank 0 shares memory with ranks 1, 2"]


def message(transport: SharedTransport, *numbers: int) -> torch.Tensor:
    room = transport.room(len(numbers))
    room.copy_(torch.tensor(numbers, dtype=torch.uint8))
    return room


def test_a_message_is_read_where_it_was_written_and_its_room_comes_back():
    first, second = linked()
    sent = message(first, 1, 2, 3)
    assert first.send(1, 7, sent).wait(1) is sent
    came = second.receive(0, 7, NOTHING).wait(1)
    assert came.tolist() == [1, 2, 3]
    sent[1] = 9
    assert came.tolist() == [1, 9, 3], "it is the same memory"
    place = sent.data_ptr()
    del sent
    kept = first.room(3)
    assert kept.data_ptr() != place, "it is still read"
    del came
    assert first.room(3).data_ptr() == place


def test_messages_are_told_by_their_tags_and_copied_from_other_memory():
    first, second = linked()
    for tag, number in ((5, 1), (6, 2), (5, 3)):
        own = torch.tensor([number], dtype=torch.uint8)
        first.send(1, tag, own)
        own.zero_()
    first.send(1, 8, NOTHING)
    found = [second.receive(0, tag, NOTHING).wait(1).tolist() for tag in (8, 6, 5, 5)]
    assert found == [[], [2], [1], [3]]


def test_any_number_of_messages_goes_through_while_the_receiver_holds_all_of_them():
    """The receiver borrows some messages and copies others; the sender waits only until they are read."""
    first, second = linked()
    count, size = 3000, 1000
    held: list[torch.Tensor] = []

    def receive() -> None:
        for tag in range(count):
            held.append(second.receive(0, tag, NOTHING).wait(20))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(receive)
        for tag in range(count):
            first.send(1, tag, torch.full((size,), tag % 251, dtype=torch.uint8)).wait(20)
        done.result(60)
    assert all(len(each) == size and each.eq(tag % 251).all() for tag, each in enumerate(held))


def test_waits_end_at_the_deadline_and_when_the_peer_gives_up():
    first, second = linked()
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"within 0\.2 s"):
        second.receive(0, 1, NOTHING).wait(0.2)
    assert 0.15 < time.monotonic() - started < 5
    first.send(1, 1, message(first, 4))
    first.close()
    assert second.receive(0, 1, NOTHING).wait(5).tolist() == [4], "what was sent before is good"
    with pytest.raises(RuntimeError, match="given up"):
        second.receive(0, 1, NOTHING).wait(60)


def test_a_message_that_lies_elsewhere_is_an_error():
    first, second = linked()
    link, end = first.links[1], len(second.links[0]._memory)
    for offset, size in ((end - 8, 9), (-8, 8), (0, -1)):
        ring_functions()["publish"](link._ring, link._published, link._loans.pop(), 1, offset, size)
        link._published += 1
        with pytest.raises(RuntimeError, match="bytes of shared memory"):
            second.receive(0, 1, NOTHING).wait(1)


@pytest.mark.parametrize("wanted", [(True, False, True), (False, True, True), (False, False, True)])
def test_who_does_not_want_to_share_is_reached_by_the_wire(wanted):
    sharers = {rank for rank, each in enumerate(wanted) if each}
    for rank, transport in enumerate(linked(3, wanted)):
        peers = {peer for peer in range(3) if isinstance(transport, SharedTransport) and transport.shares(peer)}
        assert peers == (sharers - {rank} if rank in sharers and len(sharers) > 1 else set())


def test_another_file_than_the_one_of_the_invitation_is_not_mapped():
    functions = ring_functions()
    own = OwnFile(functions, 2)
    other = OwnFile(functions, 2)
    PeerFile(functions, own.invitation(), 2, 1)
    token = own.invitation()[16:32]
    with pytest.raises(OSError, match="another file"):
        PeerFile(functions, other.invitation()[:16] + token + other.invitation()[32:], 2, 1)
    assert os.stat(f"/proc/self/fd/{own._file}").st_mode & 0o777 == 0o600
    with pytest.raises(PermissionError):
        os.ftruncate(own._file, 100)
    own.close()
    with pytest.raises(OSError):
        PeerFile(functions, own.invitation(), 2, 1)
    other.close()


def test_the_memory_has_no_name_and_nobody_else_opens_it():
    """A stranger who knows the process and the file can't open it: tried where the tests may change their user."""
    own = OwnFile(ring_functions(), 2)
    path = f"/proc/{os.getpid()}/fd/{own._file}"
    assert os.readlink(path).startswith("/memfd:")
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
                os.open(path, os.O_RDONLY)
            os._exit(int(os.geteuid() == 65534))
        except PermissionError:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    own.close()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 500, 513, 4097, 1_000_003])
def test_blocks_are_little_larger_than_what_is_in_them(size):
    assert max(size, 1) <= block_bytes(size) <= max(64 + size, size * 9 // 8 + 1) and block_bytes(size) % 64 == 0


def test_an_arena_that_is_full_says_so(monkeypatch):
    monkeypatch.setattr(shared_memory, "MOST_ARENA", 1 << 20)
    first, _ = linked()
    kept = first.room(900_000)
    with pytest.raises(TensorError, match="have no room for 900,000 more"):
        first.room(900_000)
    del kept
    assert first.room(900_000).numel() == 900_000


def test_an_arena_gives_pages_back_that_nobody_wants():
    first, second = linked()
    sent = first.room(1 << 20).fill_(3)
    first.send(1, 7, sent)
    came = second.receive(0, 7, NOTHING).wait(1)
    arena = first._own.arena.memory
    del sent
    for _ in range(3):
        first._arena._looked -= 2 * IDLE_SECONDS
        first.room(1)
    assert bool(came.eq(3).all()), "it is still read"
    del came
    for _ in range(3):
        first._arena._looked -= 2 * IDLE_SECONDS
        first.room(1)
    assert bytes(arena[: 1 << 21]).count(3) < 2 * shared_memory.PAGE


def test_hosts_of_two_ranks_each_share_among_themselves(four):
    """Sums of two hosts have the bits of the wire, for schemes with and without tiers, and ``holders``."""
    found = four.run(JOBS + "mixed", size=4, schemes=["balanced", "holders", "dense_ring", "zen"])
    assert [peers for peers, _ in found] == [[1], [0], [3], [2]]
    assert all(shared == wire for _, bits in found for shared, wire in bits)


def test_long_messages_and_an_end_of_the_process_that_nobody_sees(tmp_path):
    """Survivors of a rank that is killed in a call raise an error soon, and nothing of it stays in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    with Ranks(3) as ranks, pytest.raises(RanksFailed) as caught:
        ranks.run(JOBS + "killed", deadline=20.0, seconds=60)
    assert set(caught.value.errors) == {1}
    for shares, long, text, seconds in caught.value.results.values():
        assert shares and long and ("peer-lost" in text or "deadline" in text) and seconds < 15
    assert set(os.listdir("/dev/shm")) <= before
