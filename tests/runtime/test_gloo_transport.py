"""The transport over gloo, where a connection ends in the middle of a packet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

from tests.support.forked import context
from zenc.runtime.transports.gloo_transport import GlooGroup, GlooTransport

BYTES, TAG = 256 << 20, 7
"""A message longer than a connection buffers, and its tag."""
DEADLINE = 60.0


def transport_of(rank: int, port: int) -> GlooTransport:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    group: Any = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=DEADLINE))
    return GlooTransport(cast(GlooGroup, group))


def peer(port: int, sends: bool) -> None:
    """Act as rank 1, which sends, or is ready to receive and then stops without reading."""
    transport, buffer = transport_of(1, port), torch.ones(BYTES, dtype=torch.uint8)
    if sends:
        transport.send(0, TAG, buffer).wait(DEADLINE)
    else:
        pending = transport.receive(0, TAG, buffer)
        os.kill(os.getpid(), signal.SIGSTOP)
        pending.wait(DEADLINE)


@contextmanager
def with_peer(sends: bool) -> Iterator[tuple[GlooTransport, BaseProcess]]:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    process = context().Process(target=peer, args=(store.port, sends), daemon=True)
    process.start()
    transport = transport_of(0, store.port)
    try:
        yield transport, process
    finally:
        process.kill()
        process.join()
        transport.close()


def is_stopped(process: BaseProcess) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("sends", [False, True], ids=["partly-sent", "partly-received"])
def test_the_end_of_a_connection_is_learnt_of_before_the_deadline(sends: bool) -> None:
    with with_peer(sends) as (transport, process):
        buffer = torch.zeros(BYTES, dtype=torch.uint8)
        while not sends and not is_stopped(process):
            time.sleep(0.01)
        pending = (transport.receive if sends else transport.send)(1, TAG, buffer)
        while sends and not buffer[0]:
            time.sleep(0.001)
        process.kill()
        began = time.monotonic()
        with pytest.raises(RuntimeError):
            pending.wait(DEADLINE)
        assert time.monotonic() - began < DEADLINE / 4


def test_who_waits_learns_that_this_rank_gives_up() -> None:
    with with_peer(sends=False) as (transport, process):
        while not is_stopped(process):
            time.sleep(0.01)
        pending = transport.send(1, TAG, torch.zeros(BYTES, dtype=torch.uint8))
        transport.close()
        with pytest.raises(RuntimeError, match="the transport is closed"):
            pending.wait(DEADLINE)
