"""A process of a soak: rank of one group after another, until it is told to end.

SoakRound, place ─▶ ("loaded", None)  ("sum", None)*  ("done", Played)        "usage" ─▶ ("usage", usage)
"""

import faulthandler
import os
import random
import signal
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore

import zenc
from tests.soak.resources import keep_no_free_memory, usage
from tests.soak.rounds import DEADLINE, SoakRound, gradient, is_sum

Tell = Callable[[tuple[str, Any]], None]


@dataclass(frozen=True)
class Played:
    """Result of a round on a rank: numbers of right and wrong calls, and the error that ended them: id, text and
    seconds.
    ``has_cut``: it has shut a connection.
    """

    sums: int
    wrong: int
    error: str = ""
    text: str = ""
    seconds: float = 0.0
    has_cut: bool = False


def serve(port: int, pipe: Connection, environment: dict[str, str]) -> None:
    """Serve rounds until told to end; ``port`` is of the store in which groups meet."""
    keep_no_free_memory()
    os.environ.clear()
    own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_FR_BUFFER_SIZE": "0"}  # torch's flight recorder
    os.environ.update({**environment, **own})
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__)
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False)
    with suppress(EOFError):
        while (order := pipe.recv()) is not None:
            if order == "usage":
                pipe.send(("usage", usage()))
            else:
                pipe.send(("done", play(*order, store, pipe.send)))
    os._exit(0)


def play(of: SoakRound, place: int, store: TCPStore, tell: Tell) -> Played:
    """Join the group of a round, make its calls, and leave it."""
    os.environ["ZENC_SOCKETS"] = "0" if of.way == "gloo" else "1"
    meeting = PrefixStore(f"{of.seed}/{of.number}/{of.members}", store)
    dist.init_process_group("gloo", store=meeting, rank=place, world_size=len(of.members))
    cuts: list[int] = []
    timer = threading.Timer(of.mishap.after if of.mishap else 0.0, _cut_a_connection, (of, store.port, cuts))
    began = time.monotonic()
    counts = [0, 0]
    try:
        loaded = [zenc.load(name, deadline=DEADLINE, shared_memory=of.way == "memory") for name in of.schemes]
        tell(("loaded", None))
        if of.mishap and of.mishap.kind == "cuts" and of.mishap.member == place:
            timer.start()
        began = time.monotonic()
        for right in _made(of, place, loaded):
            counts[not right] += 1
            began = time.monotonic()
            tell(("sum", None))
        return Played(*counts, has_cut=bool(cuts))
    except zenc.ZencError as error:
        text = str(error).splitlines()[0]
        return Played(*counts, error.diagnostics[0].id, text, time.monotonic() - began, bool(cuts))
    finally:
        timer.cancel()
        dist.destroy_process_group()


def _made(of: SoakRound, place: int, loaded: list[zenc.Collective]) -> Any:
    """Yield whether each call of a round, in order, has ended with its sum."""
    size, under_way = len(of.members), deque[Any]()
    for number, summand in enumerate(of.summands):
        brought = summand
        if of.mishap and of.mishap.kind == "reshapes" and (place, number) == (of.mishap.member, 1):
            brought = replace(summand, units=summand.units + 1)
        work = loaded[summand.scheme].all_reduce(gradient(brought, place), summand.op, async_op=True)
        under_way.append((work, summand))
        if len(under_way) > of.window:
            work, which = under_way.popleft()
            yield is_sum(work.wait(), which, size)
    for work, which in under_way:
        yield is_sum(work.wait(), which, size)


def _cut_a_connection(of: SoakRound, store: int, cuts: list[int]) -> None:
    """Shut one of this process's TCP connections, but not that to the ``store``, as if its network had reset it.

    The connection is then in ``cuts``.
    """
    connections = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode) and _peer_port(int(name)) not in (None, store):
                connections.append(int(name))
    if connections:
        chosen = random.Random(of.number).choice(sorted(connections))
        with suppress(OSError), socket.socket(fileno=os.dup(chosen)) as each:
            each.shutdown(socket.SHUT_RDWR)
            cuts.append(chosen)


def _peer_port(file: int) -> int | None:
    """Return the port to which the socket ``file`` is connected by TCP, if it is. Raise OSError where it is not."""
    with socket.socket(fileno=os.dup(file)) as each:
        return int(each.getpeername()[1]) if each.family in (socket.AF_INET, socket.AF_INET6) else None
