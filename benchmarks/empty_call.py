"""The cost of a call when there is nothing to sum: zenc beside gloo, interleaved in one run.

    python -m benchmarks.empty_call [--ranks 4] [--rounds 400] [--json FILE]

Three things take turns in every round, each from a barrier on, timed on rank 0:
    gloo's messages    the packets of an empty zenc call, sent and received by gloo alone
    gloo's all-reduce  torch.distributed.all_reduce of the same empty sparse tensor, which is what DDP does
    zenc               Collective.all_reduce of it with schemes/balanced.zen, over connections of its own
    zenc, async        the same with async_op=True and wait(), which is how the DDP hook calls it
Medians, and the median of the differences in each round. With more ranks than cores these are mostly the scheduler's.

Then the same call again in this process alone, over a transport that gives rank 0 the packets that its peers once sent
and takes its own for nothing: what is left is all that zenc adds to gloo's messages. As it is; with async_op=True and
wait(); and through the DDP hook and its future, with the two changes of thread that gloo's own all-reduce has as well.
What those cost gloo shows in its all-reduce of the same tensor in a group of one rank, which sends nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import HashStore, ProcessGroupGloo

import zenc
from benchmarks.replayed import CALL_AT, STEP_BITS, Delivered, NoWire, OneCall
from zenc.pipeline import backend
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.collective import Collective
from zenc.runtime.transports.gloo_transport import GlooTransport
from zenc.torch.hook import ZencState, zenc_hook

ROWS, WIDTH = 10_000, 64
PACKET_BYTES = 64
KEPT_BYTES = 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    recorded = mp.get_context("spawn").SimpleQueue()
    mp.spawn(measure, (options.ranks, options.rounds, recorded), nprocs=options.ranks)
    times, packets = recorded.get()
    rows = summary({name: values[options.rounds // 10 :] for name, values in times.items()})
    rows |= replay(options.ranks, packets)
    show(rows, options.ranks)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": options.ranks, "microseconds": rows}, file, indent=2)


def empty_gradient() -> torch.Tensor:
    indices, values = torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, WIDTH)
    return torch.sparse_coo_tensor(indices, values, (ROWS, WIDTH), check_invariants=False)


def measure(rank: int, size: int, rounds: int, recorded: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29613", rank=rank, world_size=size)
    collective = zenc.load("balanced", shared_memory=False)
    empty = empty_gradient()
    calls: dict[str, Callable[[], object]] = {
        "gloo's messages": lambda: messages(rank, size),
        "gloo's all-reduce": lambda: dist.all_reduce(empty.clone()),
        "zenc": lambda: collective.all_reduce(empty, "mean"),
        "zenc, async": lambda: collective.all_reduce(empty, "mean", async_op=True).wait(),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            started = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - started) * 1e6)
    communicator = collective.communicator
    assert communicator.group is not None
    communicator.transport = listening = Listening(GlooTransport(communicator.group))
    artifact = collective.artifact
    Collective(artifact, communicator, lambda device: backend(artifact, device, communicator, 60.0)).all_reduce(
        empty, "mean"
    )
    if rank == 0:
        recorded.put((times, {key: bytes(packet.tolist()) for key, packet in listening.packets.items()}))
    dist.barrier()
    dist.destroy_process_group()


class Listening(NoWire):
    """A transport that remembers the first bytes of what came, by step and peer."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.rank, self.size = inner, inner.rank, inner.size
        self.packets: dict[tuple[int, int], torch.Tensor] = {}

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Any:
        return self.inner.send(peer, tag, buffer)

    def close(self) -> None:
        self.inner.close()

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Any:
        self.packets[peer, tag & STEP_BITS] = buffer[:KEPT_BYTES]
        return self.inner.receive(peer, tag, buffer)


class Replaying(NoWire):
    """A transport without cost: recorded packets come at once, and packets that are sent are forgotten."""

    rank = 0

    def __init__(self, size: int, packets: dict[tuple[int, int], bytes]) -> None:
        self.size, self.packets = size, packets
        self.delivered: set[int] = set()

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Delivered:
        if (address := buffer.data_ptr()) not in self.delivered:  # first packets keep their buffers, and what is there
            ctypes.memmove(address, self.packets[peer, tag & STEP_BITS], KEPT_BYTES)
            self.delivered.add(address)
        return Delivered(buffer)


def replay(size: int, packets: dict[tuple[int, int], bytes]) -> dict[str, dict[str, float]]:
    """Return microseconds of rank 0's calls without gloo, all of them the one call whose packets were recorded."""
    artifact = zenc.compile("balanced", ranks=size)
    nowhere: Any = None
    communicator = OneCall(nowhere, nowhere, Replaying(size, packets), Worker("replay"))
    communicator.calls = int.from_bytes(next(iter(packets.values()))[CALL_AT], "little")  # from a message header
    collective = Collective(artifact, communicator, lambda device: backend(artifact, device, communicator, 60.0))
    empty = empty_gradient()
    alone = ProcessGroupGloo(HashStore(), 0, 1, timedelta(seconds=60))
    state, bucket = ZencState(collective), Bucket(empty)
    return per_call(
        {
            "zenc without messages": lambda: collective.all_reduce(empty, "mean"),
            "zenc without messages, async": lambda: collective.all_reduce(empty, "mean", async_op=True).wait(),
            "hook without messages": lambda: zenc_hook(state, bucket).wait(),
            "gloo's all-reduce without messages": lambda: alone.allreduce([empty]).get_future().wait(),
        }
    )


class Bucket:
    """The part of a DDP bucket, which only DDP can make, that the hook uses."""

    def __init__(self, gradient: torch.Tensor) -> None:
        self.gradient = gradient

    def buffer(self) -> torch.Tensor:
        return self.gradient

    def parameters(self) -> list[torch.Tensor]:
        return []

    def index(self) -> int:
        return 0


def per_call(calls: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Return the medians over 200 batches of 20 calls, which take turns."""
    batches: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(200):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(20):
                call()
            batches[name].append((time.perf_counter() - started) / 20 * 1e6)
    return {name: {"median_us": statistics.median(times)} for name, times in batches.items()}


def messages(rank: int, size: int) -> None:
    """Exchange messages with every peer, twice, as push and pull of ``balanced`` do in an empty call."""
    for tag in (1, 2):
        peers = [peer for peer in range(size) if peer != rank]
        packets = [torch.empty(PACKET_BYTES, dtype=torch.uint8) for _ in peers]
        waiting = [dist.irecv(packet, peer, tag=tag) for packet, peer in zip(packets, peers, strict=True)]
        waiting += [dist.isend(torch.zeros(PACKET_BYTES, dtype=torch.uint8), peer, tag=tag) for peer in peers]
        for work in waiting:
            work.wait()


def summary(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    messages = times["gloo's messages"]
    return {
        name: {
            "median_us": statistics.median(values),
            "beyond_messages_us": statistics.median(a - b for a, b in zip(values, messages, strict=True)),
        }
        for name, values in times.items()
    }


def show(rows: dict[str, dict[str, float]], size: int) -> None:
    print(f"{size} ranks, empty gradient of {ROWS} x {WIDTH}, torch {torch.__version__}")
    print(f"{'':36}{'median, us':>12}{'beyond messages, us':>22}")
    for name, row in rows.items():
        beyond = f"{row['beyond_messages_us']:22.0f}" if "beyond_messages_us" in row else ""
        print(f"{name:36}{row['median_us']:12.0f}{beyond}")


if __name__ == "__main__":
    main()
