"""Messages over TCP connections of zenc's own: bytes, memory, waits, ends, and the making of connections."""

import mmap
import os
import random
import secrets
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import zenc
from tests.runtime.jobs import bits
from tests.support.cases import sparse_tensor
from tests.support.fuzz import fuzzed
from tests.support.meeting import Meeting, communicator_of
from zenc.runtime.group.host_collectives import gather_equal
from zenc.runtime.transports import connections
from zenc.runtime.transports.connections import MOST_UNKNOWN, TOKEN_BYTES, Admission, connected, greeting
from zenc.runtime.transports.socket_transport import SocketTransport, hub_functions, room_of_machine

JOBS = "tests.runtime.test_sockets:"
NOTHING = torch.empty(0, dtype=torch.uint8)
LONG = 5_000_000
"""Bytes of a message that no socket takes at once."""


def pair() -> tuple[SocketTransport, SocketTransport]:
    files = [each.detach() for each in socket.socketpair()]
    return made(0, [-1, files[0]]), made(1, [files[1], -1])


def made(rank: int, files: list[int]) -> SocketTransport:
    return SocketTransport(hub_functions(), room_of_machine(), rank, files)


def message(size: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@fuzzed(15)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 15, 16, 17, 70_000, 300_000])), min_size=1, max_size=40
    ),
    st.integers(0, 1000),
)
def test_messages_come_whole_by_their_tags_in_any_order(sizes: list[tuple[int, int]], seed: int) -> None:
    """Two threads send and two receive, each every other tag; those of one tag come in the order of sending."""
    ends, found = pair(), {}
    sent = [(tag, message(size, number)) for number, (tag, size) in enumerate(sizes)]
    order = {tag: [packet for of, packet in sent if of == tag] for tag in range(4)}

    def send(parity: int) -> None:
        pending = [ends[0].send(1, tag, packet) for tag, packet in sent if tag % 2 == parity]
        [each.wait(20) for each in pending]

    def receive(parity: int) -> None:
        tags = [tag for tag, _ in sent if tag % 2 == parity]
        random.Random(seed).shuffle(tags)
        for tag in tags:
            found.setdefault(tag, []).append(ends[1].receive(0, tag, NOTHING).wait(20))

    with ThreadPoolExecutor(4) as pool:
        [done.result(30) for done in [pool.submit(run, one) for one in (0, 1) for run in (send, receive)]]
    assert all(torch.equal(a, b) for tag in found for a, b in zip(found[tag], order[tag], strict=True))
    assert sum(map(len, found.values())) == len(sent)
    [end.close() for end in ends]


def test_long_messages_go_both_ways_while_nobody_waits() -> None:
    first, second = pair()
    packets = [message(LONG, seed) for seed in (1, 2)]
    pending = first.send(1, 7, packets[0]), second.send(0, 7, packets[1])
    assert torch.equal(second.receive(0, 7, NOTHING).wait(20), packets[0])
    time.sleep(0.2)
    assert second._sent(second._hub, 0, 1, 0) in (0, 1), "it is asked for without a wait"
    assert torch.equal(first.receive(1, 7, NOTHING).wait(20), packets[1])
    assert [each.wait(20).data_ptr() for each in pending] == [packet.data_ptr() for packet in packets]


def test_the_memory_of_a_message_is_used_again_when_nobody_refers_to_it() -> None:
    first, second = pair()
    places = []
    for kept in (True, False, False):
        first.send(1, 3, message(1000, 0)).wait(5)
        came = second.receive(0, 3, NOTHING).wait(5)
        view = came[10:20]
        places.append(came.data_ptr())
        del came
        if not kept:
            del view
    assert places[0] != places[1] == places[2]


def test_waits_end_at_the_deadline_and_when_the_peer_gives_up() -> None:
    first, second = pair()
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"within 0\.2 s"):
        second.receive(0, 1, NOTHING).wait(0.2)
    assert 0.15 < time.monotonic() - started < 5
    kept = message(LONG, 3)  # until it is sent
    first.send(1, 1, kept)
    first.close()
    with pytest.raises(RuntimeError, match="given up"):
        first.receive(1, 1, NOTHING).wait(60)
    assert torch.equal(second.receive(0, 1, NOTHING).wait(5), kept), "what was sent before is good"
    with pytest.raises(RuntimeError, match="given up"):
        second.receive(0, 1, NOTHING).wait(60)
    with pytest.raises(RuntimeError, match="given up"):
        second.send(0, 1, message(LONG, 3)).wait(60)


def test_who_has_sent_much_that_nobody_wants_waits_until_somebody_does() -> None:
    """Blocks of messages that are not asked for take 64 MB and what sockets hold, and no more, until their call is.

    A rank that waits for a call takes messages of the next one that come before.
    """
    first, second = pair()
    packets, size, next_call = 30, 4_000_000, 1 << 15
    sending = [first.send(1, next_call + tag, torch.zeros(size, dtype=torch.uint8)) for tag in range(packets)]
    with pytest.raises(RuntimeError, match="nothing was taken"):
        sending[-1].wait(0.3)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(second.receive(0, 5, NOTHING).wait, 20)
        assert sending[-1].wait(20) is not None
        first.send(1, 5, NOTHING)
        assert waits.result(20).numel() == 0
    assert all(len(second.receive(0, next_call + tag, NOTHING).wait(5)) == size for tag in range(packets))


def test_both_ranks_wait_until_all_is_sent_after_much_was_taken() -> None:
    """Messages that have been taken count no more."""
    ends, zeros, long = pair(), torch.zeros(4_000_000, dtype=torch.uint8), message(LONG, 1)
    for sender, receiver in ((0, 1), (1, 0)):
        for _ in range(20):
            sending = ends[sender].send(receiver, 1, zeros)
            ends[receiver].receive(sender, 1, NOTHING).wait(20)
            sending.wait(20)
    pending = [ends[rank].send(1 - rank, 2, long) for rank in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        [done.result(20) for done in [pool.submit(each.wait, 8) for each in pending]]
    assert torch.equal(ends[1].receive(0, 2, NOTHING).wait(8), long)


def test_no_block_goes_beyond_the_room() -> None:
    files = [each.detach() for each in socket.socketpair()]
    first, one = made(0, [-1, files[0]]), torch.ones(64, dtype=torch.uint8)
    second = SocketTransport(hub_functions(), mmap.mmap(-1, 192), 1, [files[1], -1])
    first.send(1, 1, one)
    kept = second.receive(0, 1, NOTHING).wait(5)
    first.send(1, 1, one)
    with pytest.raises(RuntimeError, match="given up"):
        second.receive(0, 1, NOTHING).wait(5)
    assert torch.equal(kept, one)


def met(addresses: list[str]) -> list[Any]:
    """Return the transports of ranks of this process."""
    meeting = Meeting(len(addresses))

    def of(rank: int) -> Any:
        communicator = communicator_of(meeting, rank)
        return connected(communicator.transport, addresses[rank], partial(gather_equal, communicator), 60.0)

    with ThreadPoolExecutor(len(addresses)) as pool:
        return list(pool.map(of, range(len(addresses))))


def test_all_ranks_connect_or_none() -> None:
    ranks = met(["127.0.0.1"] * 3)
    for rank, transport in enumerate(ranks):
        for peer in {0, 1, 2} - {rank}:
            transport.send(peer, 5, torch.tensor([rank], dtype=torch.uint8))
    found = [[ranks[r].receive(p, 5, NOTHING).wait(5).tolist() for p in {0, 1, 2} - {r}] for r in range(3)]
    assert found == [[[1], [2]], [[0], [2]], [[0], [1]]]
    assert not any(isinstance(each, SocketTransport) for each in met(["127.0.0.1", "", "127.0.0.1"]))


def test_a_rank_without_memory_for_what_comes_keeps_all_with_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = iter([room_of_machine(), None, room_of_machine()])

    def room() -> Any:
        if (found := next(rooms)) is None:
            raise OSError("there is no memory")
        return found

    monkeypatch.setattr(connections, "room_of_machine", room)
    assert not any(isinstance(each, SocketTransport) for each in met(["127.0.0.1"] * 3))


OTHER_JOB = greeting(secrets.token_bytes(TOKEN_BYTES), 1)
"""Greeting of a rank of another job, which got this port by mistake."""
STRANGERS: dict[str, list[bytes]] = {
    "another job": [OTHER_JOB],
    "a web browser": [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"],
    "silence": [b""],
    "half a greeting": [OTHER_JOB[:7]],
    "no token": [greeting(bytes(TOKEN_BYTES), 1)],
    "many that say nothing": [b""] * (2 * MOST_UNKNOWN),
    "many at once": [OTHER_JOB, b"", OTHER_JOB[:19], OTHER_JOB * 100] * 20,
}


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_are_no_ranks_and_hold_nobody_up(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers come first and stay until they are sent away; ranks connect all the same, and soon."""
    listens, strangers = connections._listener, list[socket.socket]()

    def come(said: list[bytes], port: tuple[str, int]) -> None:
        for each in said:
            with suppress(ConnectionError):  # the port is closed once the ranks are there
                strangers.append(socket.create_connection(port, 5))
                strangers[-1].sendall(each)

    def listener(address: str, backlog: int) -> Any:
        made = listens(address, backlog)
        come(STRANGERS[who][:20], made.getsockname())
        pool.submit(come, STRANGERS[who][20:], made.getsockname())
        return made

    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(connections, "_listener", listener)
        started = time.monotonic()
        ranks = met(["127.0.0.1"] * 2)
        assert time.monotonic() - started < connections.CONNECT_SECONDS / 2
    ranks[1].send(0, 5, torch.tensor([7], dtype=torch.uint8))
    assert ranks[0].receive(1, 5, NOTHING).wait(5).tolist() == [7]
    assert all(sent_away(each) for each in strangers)


def test_only_a_rank_that_is_expected_is_admitted_and_once() -> None:
    """Strangers' connections are closed unread, even with the token; bytes after a greeting are the transport's."""
    token = secrets.token_bytes(TOKEN_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said = [greeting(token, 0), greeting(token, 3), greeting(token, 1 << 31), greeting(token, 2) + b"first"]
        said += [greeting(token, 2), greeting(token, 1)]
        visitors = []
        for each in said:
            visitors.append(socket.create_connection(listener.getsockname(), 5))
            visitors[-1].sendall(each)
        admission = Admission(listener, token, [1, 2])
        admission.admit(time.monotonic() + 5)
    assert admission.peers.keys() == {1, 2}
    assert admission.peers[2].recv(100) == b"first"
    assert [sent_away(each) for each in visitors[:3]] == [True] * 3 and sent_away(visitors[4])


def sent_away(stranger: socket.socket) -> bool:
    """Return whether a connection has ended, looked at by the other side or not."""
    stranger.settimeout(5)
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True


def ways(group: dist.ProcessGroup, scheme: str) -> tuple[list[str], list[str]]:
    """Return the transports of two groups, in one of which ranks refuse their own connections; and bits of sums."""
    rank, size, names, found = group.rank(), group.size(), [], []
    for wanted in "10":
        os.environ["ZENC_SOCKETS"] = wanted
        of = zenc.load(scheme, dist.new_group(list(range(size))), shared_memory=False)
        names.append(type(of.communicator.wire).__name__)
        found.append(bits(of.all_reduce(sparse_tensor("random", rank, size, 4000, 16, torch.float32, 3))))
    del os.environ["ZENC_SOCKETS"]
    return names, found


@pytest.mark.parametrize("scheme", ["balanced", "double_binary_tree"])
def test_ranks_without_connections_of_their_own_take_gloo(four: Any, scheme: str) -> None:
    """Over connections messages of the second flow, and over gloo they go step by step."""
    found = four.run(JOBS + "ways", size=4, scheme=scheme)
    assert all(names == ["SocketTransport", "GlooTransport"] for names, _ in found)
    assert {bit for _, all_bits in found for bit in all_bits} == {found[0][1][0]}
