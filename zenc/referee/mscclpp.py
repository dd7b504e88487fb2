"""MSCCL++'s execution plans in JSON -> plans.

What an operation means is what the executor makes of it (``src/core/executor/execution_plan.cc``,
``src/core/include/execution_kernel.hpp``). Operations of a thread block run one after another. A GPU reads and writes
the memory of others, so these must have begun, and wait for it: a signal, a barrier or a semaphore orders, and so do
packets, which are read when they have come. The iterations of a pipeline are slices of the same chunks; it is judged as
one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import lcm
from typing import Any

from zenc.errors import Diagnostic, Source
from zenc.referee.model import BlockStep, Cell, Channel, ChunkMove, ForeignPlan
from zenc.referee.reading import MOST_GPUS, PlanBuilder

Json = dict[str, Any]
PAIRS = {"copy", "put", "pws", "pwsf", "get", "ppkt", "cpkt", "upkt"}
"""Operations that copy each source to one destination; others write the sum of all sources to all destinations."""
SUMS = {"re", "res", "rre", "rres", "rppkt", "repkt", "respkt", "recpkt", "recspkt", "glres", "gstore", "gstorepkt"}
PACKETS = {"upkt": 0, "rppkt": 0, "gstorepkt": 0, "repkt": 1, "respkt": 1, "recpkt": 1, "recspkt": 1}
"""Operations that read packets, and the first of their sources that are some."""
TOKENS = {"signal", "wait", "rlxsignal", "rlxwait"}
CONTROL = {*TOKENS, "nop", "flush", "barrier", "sem_acquire", "sem_release", "pipeline"}


def read(data: bytes, source: Source) -> ForeignPlan:
    """Return the plan in ``data``; raises PlanError."""
    reader = _ExecutionReader(source)
    return reader.plan(reader.json(data))


class _ExecutionReader(PlanBuilder):
    def plan(self, data: Json) -> ForeignPlan:
        gpus = [self.of(gpu, dict, "a gpu") for gpu in self.of(data.get("gpus"), list, "'gpus'")]
        size = self.whole(len(gpus), "the number of gpus", 1, MOST_GPUS)
        self.ensure_gpus((self.whole(gpu.get("id"), "the id of a gpu") for gpu in gpus), size)
        self.gpus = sorted(gpus, key=lambda gpu: int(gpu["id"]))
        self.slices, self.room, self.piped = self._slices(gpus), dict[tuple[int, str], int](), False
        for gpu, one in enumerate(self.gpus):
            for buffer, name in (("i", "input_chunks"), ("o", "output_chunks"), ("s", "scratch_chunks")):
                self.room[gpu, buffer] = self.slices * self.whole(one.get(name), f"'{name}' of gpu {gpu}")
        gathers = str(data.get("collective")).replace("_", "") == "allgather"
        whole = self.whole(self.room[0, "o" if gathers else "i"], "the number of chunks", 1)
        goal = self.goal(data.get("collective"), size, whole)
        self.links = [self._links(gpu) for gpu in range(size)]
        self.arrived: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self.leaving: dict[int, tuple[int, int, int]] = {}
        self.releasers: dict[Channel, set[int]] = defaultdict(set)
        for gpu in range(size):
            self._semaphores(gpu)
            for block in self._list(self.gpus[gpu], "threadblocks"):
                self._block(gpu, self.of(block, dict, "a threadblock"))
        steps = list(self.steps)
        for index, key in self.leaving.items():
            steps[index] = replace(steps[index], after=tuple(self.arrived[key]))
        piped = Diagnostic("pipeline-once", "pipelines are judged as one iteration", severity="warning")
        name, in_place = str(data.get("name", ""))[:80], data.get("inplace") is True
        return ForeignPlan(
            self.source, self.place, "MSCCL++ JSON", name, goal, (in_place,), tuple(self.blocks), tuple(steps),
            self.room, "{2} channel {3} from {0} to {1}", (), self.slices, (piped,) * self.piped,
        )  # fmt: skip

    def _list(self, data: Json, name: str) -> list[Any]:
        found: list[Any] = self.of(data.get(name, []), list, f"'{name}'")
        return found

    def _slices(self, gpus: list[Json]) -> int:
        """Return how many slices of a chunk are told apart, by the sizes of groups of thread blocks."""
        sizes = [1]
        for gpu in gpus:
            for block in self._list(gpu, "threadblocks"):
                for op in self._list(self.of(block, dict, "a threadblock"), "ops"):
                    if isinstance(op, dict) and isinstance(op.get("tbg_info"), dict):
                        sizes.append(self.whole(op["tbg_info"].get("tbg_size"), "'tbg_size'", 1, 64))
        return self.whole(lcm(*sizes), "the number of slices of a chunk", 1, 64)

    def _links(self, gpu: int) -> dict[str, list[Channel]]:
        """Return the ends of the GPU's channels by type: peer, and which of the channels to it."""
        links: dict[str, list[Channel]] = defaultdict(list)
        for channel in self._list(self.gpus[gpu], "channels"):
            kind = str(self.of(channel, dict, "a channel").get("channel_type"))
            if kind == "switch":
                for group in self._list(channel, "rank_groups"):
                    ranks = [self._rank(rank) for rank in self._list(self.of(group, dict, "a group"), "ranks")]
                    links[kind].append((str(channel.get("buffer_type", channel.get("buff"))), *ranks))
                continue
            for peer in self._list(channel, "connected_to"):
                to = self._rank(peer)
                links[kind].append((gpu, to, kind, sum(other[1] == to for other in links[kind])))
        return links

    def _rank(self, value: object) -> int:
        return self.whole(value, "a rank", 0, len(self.gpus) - 1)

    def _semaphores(self, gpu: int) -> None:
        for id, semaphore in enumerate(self._list(self.gpus[gpu], "semaphores")):
            first = len(self.steps)
            tokens = self.whole(self.of(semaphore, dict, "a semaphore").get("init_value", 0), "'init_value'", 0, 64)
            for _ in range(tokens):
                self._token(f"gpu {gpu}, semaphore {id}", ((gpu, gpu, "semaphore", id),), True)
            self.close(gpu, first)

    def _block(self, gpu: int, data: Json) -> None:
        first, self.barriers = len(self.steps), defaultdict[int, int](int)
        self.block, self.gpu = data, gpu
        id = self.whole(data.get("id"), "the id of a threadblock")
        for at, op in enumerate(self._list(data, "ops")):
            self._op(gpu, f"gpu {gpu}, threadblock {id}, op {at}", self.of(op, dict, "an op"))
        self.close(gpu, first)

    def _op(self, gpu: int, place: str, op: Json) -> None:
        name = str(op.get("name"))
        place = f"{place} ({name[:20]})"
        if name in PAIRS | SUMS:
            self._data(gpu, place, name, op)
        elif name not in CONTROL:
            known = ", ".join(sorted(PAIRS | SUMS | CONTROL))
            self._fail("unsupported-plan", f"{place} is no operation that is judged", None, f"those are {known}")
        elif name == "pipeline":
            self.piped = True
            for at, inner in enumerate(self._list(op, "ops")):
                self._op(gpu, f"{place[: -len(' (pipeline)')]}.{at}", self.of(inner, dict, "an op"))
        elif name == "barrier":
            self._barrier(gpu, place, op)
        elif name.startswith("sem_"):
            ids = [self.whole(id, "a semaphore") for id in self._list(op, "semaphore_ids")]
            ends = tuple((gpu, gpu, "semaphore", id) for id in ids)
            self._token(place, ends, name == "sem_release")
            for end in ends if name == "sem_release" else ():
                self.releasers[end].add(len(self.blocks))
                if len(self.releasers[end]) > 1:
                    self._fail("unsupported-plan", f"{place}: several threadblocks release semaphore {end[3]}")
        elif name in TOKENS:
            self._token(place, self._ends(op, name.endswith("wait")), name.endswith("signal"))

    def _token(self, place: str, ends: tuple[Channel, ...], gives: bool) -> None:
        self.add(BlockStep(place, len(self.blocks), takes=() if gives else ends, gives=ends if gives else ()))

    def _barrier(self, gpu: int, place: str, op: Json) -> None:
        id = self.whole(op.get("barrier_id"), f"'barrier_id' of {place}")
        key = (gpu, id, self.barriers[id])
        self.barriers[id] += 1
        self.arrived[key].append(self.add(BlockStep(place, len(self.blocks))))
        self.leaving[self.add(BlockStep(place, len(self.blocks)))] = key

    def _ends(self, op: Json, waits: bool) -> tuple[Channel, ...]:
        """Return the channels of an operation, from the end that gives: its own, or its peers' where it ``waits``."""
        kind, ends = str(op.get("channel_type")), list[Channel]()
        for id in self._list(op, "channel_ids"):
            link = self._linked(kind, id)
            ends.append((link[1], link[0], *link[2:]) if waits else link)
        return tuple(ends)

    def _linked(self, kind: str, id: object) -> Channel:
        links = self.links[self.gpu][kind]
        return links[self._within(("channels", "channel_type", "channel_ids"), kind, id, "a channel id", len(links))]

    def _within(self, keys: tuple[str, str, str], kind: str, id: object, what: str, number: int) -> int:
        """Return which of ``number`` things of its GPU the block calls ``id`` among those of a ``kind``."""
        each, type, name = keys
        refs = [self.of(ref, dict, what) for ref in self._list(self.block, each)]
        ids = [one for ref in refs if ref.get(type) == kind for one in self._list(ref, name)]
        return self.whole(ids[self.whole(id, what, 0, len(ids) - 1)], what, 0, number - 1)

    def _data(self, gpu: int, place: str, name: str, op: Json) -> None:
        sources = [self._cells(gpu, place, op, buffer) for buffer in self._list(op, "src_buff")]
        targets = [self._cells(gpu, place, op, buffer) for buffer in self._list(op, "dst_buff")]
        if not sources or not targets:
            self._malformed(f"{place} has no source, or no destination")
        if len({len(cells) for cells in (*sources, *targets)}) > 1:
            self._malformed(f"{place} has sources and destinations of different sizes")
        if name in PAIRS:
            sources = sources if len(sources) == len(targets) else [sources[0]] * len(targets)
            pairs = [([to], [of]) for to, of in zip(targets, sources, strict=True)]
        else:
            pairs = [(targets, sources)]
        moves = tuple(
            ChunkMove(
                tuple(cell for cells in into for cell in cells[at]), tuple(cell for cells in of for cell in cells[at])
            )
            for into, of in pairs
            for at in range(len(of[0]))
        )
        read = sources[PACKETS[name] :] if name in PACKETS else []
        until = tuple(cell for cells in read for group in cells for cell in group)
        self.add(BlockStep(place, len(self.blocks), moves, until=until))
        if name in ("pws", "pwsf"):
            self._token(place, self._ends(op, False), True)

    def _cells(self, gpu: int, place: str, op: Json, data: object) -> list[tuple[Cell, ...]]:
        """Return the cells of each slice of an operation's buffer: one, or that of each GPU behind a switch."""
        buffer = self.of(data, dict, f"a buffer of {place}")
        index, size = (self.whole(buffer.get(name), f"'{name}' of {place}") for name in ("index", "size"))
        first, last = index * self.slices, (index + self.reserve(size)) * self.slices
        group = op.get("tbg_info")
        if isinstance(group, dict):
            of, at = self.whole(group.get("tbg_size"), "'tbg_size'", 1), self.whole(group.get("tb_id"), "'tb_id'")
            first, last = first + (last - first) * at // of, first + (last - first) * (at + 1) // of
        kind, gpus = str(buffer.get("type")), [gpu]
        if "buffer_id" in buffer:
            kind, gpus = self._remote(gpu, str(op.get("channel_type")), buffer["buffer_id"])
        elif "switch_channel_id" in buffer:
            link = self._linked("switch", buffer["switch_channel_id"])
            kind, gpus = str(link[0]), [int(rank) for rank in link[1:]]
        if kind not in ("i", "o", "s"):
            self._malformed(f"a buffer of {place} is '{kind[:40]}'; one of i, o, s")
        return [tuple((one, kind, at) for one in gpus) for at in range(first, last)]

    def _remote(self, gpu: int, kind: str, id: object) -> tuple[str, list[int]]:
        buffers = self._list(self.gpus[gpu], "remote_buffers")
        keys = "remote_buffer_refs", "access_channel_type", "remote_buffer_ids"
        buffer = self.of(buffers[self._within(keys, kind, id, "a buffer id", len(buffers))], dict, "a remote buffer")
        return str(buffer.get("type")), [self._rank(buffer.get("rank"))]
