"""Small plans in the formats of other synthesizers, damaged ones, and a judge of them that shares nothing with zenc's.

The judge plays MSCCL's XML with random integers, one for each chunk of each GPU, in an order of steps drawn at random
from the graph of what waits for what, and looks for conflicting steps without a path between them in that graph.
"""

import json
import random
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import networkx as nx

Cell = tuple[int, str, int]


class XmlPlan:
    """A plan in MSCCL's XML as it is written: steps by GPU and thread block."""

    def __init__(self, coll: str, gpus: int, chunks: int, scratch: int = 0, in_place: bool = True) -> None:
        share = chunks // gpus
        inside = share if coll == "allgather" and not in_place else chunks
        outside = share if coll == "reducescatter" and not in_place else chunks
        place = {"inplace": str(int(in_place)), "outofplace": str(int(not in_place))}
        self.root = ET.Element("algo", name=f"own_{coll}", proto="Simple", nchannels="1", nchunksperloop=str(chunks))
        self.root.attrib |= {"ngpus": str(gpus), "coll": coll, **place, "minBytes": "0", "maxBytes": "0"}
        self.gpus = [
            ET.SubElement(
                self.root, "gpu", id=str(g), i_chunks=str(inside), o_chunks=str(outside), s_chunks=str(scratch)
            )
            for g in range(gpus)
        ]

    def block(self, gpu: int, send: int = -1, recv: int = -1, chan: int = 0) -> ET.Element:
        """Return a new thread block of ``gpu``."""
        id = str(len(self.gpus[gpu]))
        return ET.SubElement(self.gpus[gpu], "tb", id=id, send=str(send), recv=str(recv), chan=str(chan))

    def text(self) -> str:
        """Return the XML, with a line for each element."""
        ET.indent(self.root)
        return ET.tostring(self.root, "unicode")


def step(
    block: ET.Element, type: str, src: tuple[str, int], dst: tuple[str, int], count: int = 1,
    dep: tuple[int, int] = (-1, -1), signals: bool = False,
) -> None:  # fmt: skip
    """Add a step to ``block``."""
    place = {"srcbuf": src[0], "srcoff": str(src[1]), "dstbuf": dst[0], "dstoff": str(dst[1]), "cnt": str(count)}
    waits = {"depid": str(dep[0]), "deps": str(dep[1]), "hasdep": str(int(signals))}
    ET.SubElement(block, "step", {"s": str(len(block)), "type": type, **place, **waits})


def ring_allreduce(gpus: int, in_place: bool = True) -> str:
    """Return an all-reduce in a ring: fused steps in one block a GPU."""
    plan = XmlPlan("allreduce", gpus, gpus, in_place=in_place)
    for gpu in range(gpus):
        block = plan.block(gpu, (gpu + 1) % gpus, (gpu - 1) % gpus)
        types = ["s", *["rrs"] * (gpus - 2), "rrcs", *["rcs"] * (gpus - 2), "r"]
        for at, type in enumerate(types):
            chunk = (gpu - at) % gpus
            step(block, type, ("i", chunk), ("o", chunk))
    return plan.text()


def allpairs_allreduce(gpus: int) -> str:
    """Return an all-reduce in place where each GPU sums its chunk in one block, out of scratch that others fill."""
    plan = XmlPlan("allreduce", gpus, gpus, gpus)
    for gpu in range(gpus):
        peers = [(gpu + d) % gpus for d in range(1, gpus)]
        summing = plan.block(gpu)
        for at in range(len(peers)):
            step(summing, "nop", ("i", -1), ("i", -1), 0, (1 + at, 1))
        summing.remove(summing[-1])
        for at, peer in enumerate(peers):
            step(
                summing,
                "re",
                ("s", peer),
                ("i", gpu),
                1,
                (len(peers), 1) if at == 0 else (-1, -1),
                at == len(peers) - 1,
            )
        for peer in peers:
            block = plan.block(gpu, peer, peer)
            step(block, "s", ("i", peer), ("s", gpu))
            step(block, "r", ("i", gpu), ("s", peer), signals=True)
            step(block, "s", ("i", gpu), ("i", gpu), dep=(0, len(summing) - 1))
            step(block, "r", ("i", peer), ("i", peer))
    return plan.text()


def pair_allreduce(gpus: int) -> str:
    """Return an all-reduce of one chunk by recursive doubling, in place; 2 or 4 GPUs."""
    plan = XmlPlan("allreduce", gpus, 1, 1)
    for gpu in range(gpus):
        rounds = gpus.bit_length() - 1
        for at in range(rounds):
            peer, before = gpu ^ (1 << at), (at - 1, 2) if at else (-1, -1)
            block = plan.block(gpu, peer, peer)
            step(block, "s", ("i", 0), ("s", 0), dep=before)
            step(block, "r", ("i", 0), ("s", 0))
            step(block, "re", ("s", 0), ("i", 0), signals=at + 1 < rounds)
    return plan.text()


def ring_allgather(gpus: int, in_place: bool) -> str:
    """Return an all-gather in a ring of two chunks a GPU."""
    plan = XmlPlan("allgather", gpus, 2 * gpus, in_place=in_place)
    for gpu in range(gpus):
        block = plan.block(gpu, (gpu + 1) % gpus, (gpu - 1) % gpus)
        step(block, "s", ("o", 2 * gpu) if in_place else ("i", 0), ("o", 2 * gpu), 2)
        for at in range(1, gpus):
            chunk = 2 * ((gpu - at) % gpus)
            step(block, "rcs" if at < gpus - 1 else "r", ("o", chunk), ("o", chunk), 2)
        if not in_place:
            step(plan.block(gpu), "cpy", ("i", 0), ("o", 2 * gpu), 2)
    return plan.text()


def ring_reducescatter(gpus: int) -> str:
    """Return a reduce-scatter in a ring, out of place."""
    plan = XmlPlan("reducescatter", gpus, gpus, in_place=False)
    for gpu in range(gpus):
        block = plan.block(gpu, (gpu + 1) % gpus, (gpu - 1) % gpus)
        for at in range(gpus):
            chunk = (gpu - at - 1) % gpus
            type = "s" if at == 0 else "rrs" if at < gpus - 1 else "rrc"
            step(block, type, ("i", chunk), ("o", 0))
    return plan.text()


def plans() -> list[str]:
    """Return ten right plans in XML."""
    return [
        *(ring_allreduce(gpus) for gpus in (2, 3, 4)),
        ring_allreduce(3, in_place=False),
        *(allpairs_allreduce(gpus) for gpus in (3, 4)),
        pair_allreduce(4),
        ring_allgather(3, True),
        ring_allgather(3, False),
        ring_reducescatter(4),
    ]


def teccl_ring(gpus: int) -> dict[str, object]:
    """Return an all-gather in a ring of GPUs 1 to ``gpus``, as TE-CCL writes it."""
    names = [gpu + 1 for gpu in range(gpus)]
    demand = {f"GPU {a}": {f"GPU {b}": {"Chunk 0": 1.0} for b in names if b != a} for a in names}
    ways = [f"{names[at]}->{names[(at + 1) % gpus]}" for at in range(gpus)]
    flows = [
        f"Chunk 0 from {names[root]} traveled over {ways[(root + at) % gpus]} in epoch {at}"
        for at in range(gpus - 1)
        for root in range(gpus)
    ]
    return {"1-Epoch_Duration": 1.0, "6-Demand_Met": demand, "7-Flows": flows}


def forestcoll_trees(gpus: int) -> str:
    """Return an all-gather of a chain from each GPU, as ForestColl writes it."""
    root = ET.Element("Algo", nchunkspernode="1")
    for gpu in range(gpus):
        tree = ET.SubElement(root, "tree", root=f"(0, 'GPU', {gpu})", index="0", nchunks="1", height=str(gpus - 1))
        for at in range(gpus - 1):
            ends = [f"(0, 'GPU', {(gpu + at + d) % gpus})" for d in (0, 1)]
            ET.SubElement(tree, "send", src=ends[0], dst=ends[1], path=",".join(ends))
    ET.indent(root)
    return ET.tostring(root, "unicode")


def mscclpp_pair() -> dict[str, object]:
    """Return an all-reduce in place of two GPUs, each of which sums a chunk, as MSCCL++ writes it."""
    cell: Callable[..., dict[str, object]] = lambda **of: {"index": 0, "size": 1, **of}  # noqa: E731
    gpus = []
    for gpu in range(2):
        signal, wait = ({"name": name, "channel_ids": [0], "channel_type": "memory"} for name in ("signal", "wait"))
        own, other = cell(type="i", index=gpu), cell(buffer_id=0, index=gpu)
        sums = {"name": "rres", "src_buff": [own, other], "dst_buff": [own, other], "channel_type": "memory"}
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]
        channels = [{"channel_type": "memory", "channel_ids": [0]}]
        block = {"id": 0, "ops": [signal, wait, sums, signal, wait], "channels": channels, "remote_buffer_refs": refs}
        remote = [{"rank": 1 - gpu, "type": "i", "access_channel_types": ["memory"]}]
        sizes = {"input_chunks": 2, "output_chunks": 2, "scratch_chunks": 0}
        link = [{"channel_type": "memory", "connected_to": [1 - gpu]}]
        gpus.append({"id": gpu, **sizes, "threadblocks": [block], "channels": link, "remote_buffers": remote})
    return {"name": "pair", "collective": "allreduce", "protocol": "Simple", "inplace": True, "gpus": gpus}


def damaged(text: str, draw: random.Random) -> str:
    """Return the XML of a plan with one or two changes of those that people and synthesizers make."""
    root = ET.fromstring(text)
    for _ in range(draw.choice((1, 1, 1, 2))):
        blocks = [block for block in root.iter("tb") if len(block)]
        block = draw.choice(blocks)
        draw.choice(DAMAGES)(root, block, draw.randrange(len(block)), draw)
        for block in root.iter("tb"):
            for at, each in enumerate(block):
                each.set("s", str(at))
    ET.indent(root)
    return ET.tostring(root, "unicode")


Damage = Callable[[ET.Element, ET.Element, int, random.Random], None]


def _drop(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    if sum(len(each) for each in root.iter("tb")) > 1:
        block.remove(block[at])


def _double(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    block.insert(at, ET.Element("step", dict(block[at].attrib)))


def _swap(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    other = draw.randrange(len(block))
    block[at].attrib, block[other].attrib = dict(block[other].attrib), dict(block[at].attrib)


def _swap_offsets(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    one, other, name = block[at], draw.choice(list(root.iter("step"))), draw.choice(("srcoff", "dstoff"))
    mine, its = one.get(name, ""), other.get(name, "")
    one.set(name, its)
    other.set(name, mine)


def _shift(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    name = draw.choice(("srcoff", "dstoff"))
    block[at].set(name, str(int(block[at].get(name, "0")) + draw.choice((-1, 1))))


def _buffer(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    block[at].set(draw.choice(("srcbuf", "dstbuf")), draw.choice("ios"))


def _peer(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    block.set(draw.choice(("send", "recv")), str(draw.randrange(int(root.get("ngpus", "1")))))


def _independent(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    waiting = [each for each in root.iter("step") if each.get("depid") != "-1"]
    if waiting:
        draw.choice(waiting).attrib |= {"depid": "-1", "deps": "-1"}


def _silent(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    waited = [each for each in root.iter("step") if each.get("hasdep") == "1"]
    if waited:
        draw.choice(waited).set("hasdep", "0")


def _dependent(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    gpu = draw.choice([each for each in root if block in list(each)])
    other = draw.choice([each for each in gpu if len(each)])
    step_ = draw.randrange(len(other))
    block[at].attrib |= {"depid": other.get("id", ""), "deps": str(step_)}
    other[step_].set("hasdep", "1")


def _type(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    block[at].set("type", draw.choice(("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")))


def _count(root: ET.Element, block: ET.Element, at: int, draw: random.Random) -> None:
    block[at].set("cnt", str(draw.choice((1, 2))))


DAMAGES: Sequence[Damage] = (
    _drop, _double, _swap, _swap_offsets, _shift, _buffer, _peer, _independent, _silent, _dependent, _type, _count
)  # fmt: skip


def is_right(text: str, draw: random.Random) -> bool:
    """Return whether the XML of a plan does what it is for, in any order of its steps."""
    try:
        return _Brute(ET.fromstring(text), draw).is_right()
    except _WrongError:
        return False


class _WrongError(Exception):
    pass


def _need(right: bool) -> None:
    if not right:
        raise _WrongError


class _Brute:
    def __init__(self, root: ET.Element, draw: random.Random) -> None:
        self.root, self.draw = root, draw
        self.gpus, self.chunks = int(root.get("ngpus", "")), int(root.get("nchunksperloop", ""))
        self.coll, self.in_place = root.get("coll", ""), root.get("inplace") == "1"
        self.share = self.chunks // self.gpus
        self.steps = [
            (int(gpu.get("id", "")), block, each)
            for gpu in root
            for block in gpu
            for each in block
            if each.get("type") != "nop"
        ]
        self.at = {id(each): index for index, (_, _, each) in enumerate(self.steps)}
        self.graph = nx.DiGraph()
        self.graph.add_nodes_from(range(len(self.steps)))

    def is_right(self) -> bool:
        for gpu in self.root:
            for block in gpu:
                self._order(gpu, block)
        pairs = self._pairs()
        _need(nx.is_directed_acyclic_graph(self.graph))
        self._ensure_ordered()
        return self._sums(pairs)

    def _order(self, gpu: ET.Element, block: ET.Element) -> None:
        """Add an edge from each step to the next of its block, and from those it waits for."""
        last, waits = None, list[int]()
        blocks = {each.get("id"): each for each in gpu}
        for each in block:
            if each.get("depid") != "-1":
                _need(each.get("depid") in blocks)
                other, at = blocks[each.get("depid")], int(each.get("deps", ""))
                _need(0 <= at < len(other))
                signalling = [one for one in list(other)[at:] if one.get("hasdep") == "1" and one.get("type") != "nop"]
                _need(bool(signalling))
                waits.append(self.at[id(signalling[0])])
            if each.get("type") == "nop":
                continue
            mine = self.at[id(each)]
            self.graph.add_edges_from((other_step, mine) for other_step in waits)
            if last is not None:
                self.graph.add_edge(last, mine)
            last, waits = mine, []

    def _pairs(self) -> dict[int, int]:
        """Return the sender of what each step receives: the k-th of a connection belongs to the k-th."""
        sends, receives = defaultdict[object, list[int]](list), defaultdict[object, list[int]](list)
        owners = defaultdict[object, set[int]](set)
        for index, (gpu, block, each) in enumerate(self.steps):
            type, chan = each.get("type", ""), block.get("chan")
            if type in ("s", "rcs", "rrs", "rrcs"):
                link = (gpu, int(block.get("send", "")), chan)
                sends[link].append(index)
                owners["s", link].add(id(block))
            if type in ("r", "rcs", "rrs", "rrc", "rrcs"):
                link = (int(block.get("recv", "")), gpu, chan)
                receives[link].append(index)
                owners["r", link].add(id(block))
        _need(all(len(found) == 1 for found in owners.values()))
        _need(all(link[0] != link[1] and -1 not in link[:2] for link in (*sends, *receives)))  # type: ignore[index]
        _need({link: len(each) for link, each in sends.items()} == {link: len(each) for link, each in receives.items()})
        pairs = {to: of for link, each in receives.items() for of, to in zip(sends[link], each, strict=True)}
        for to, of in pairs.items():
            _need(self.steps[to][2].get("cnt") == self.steps[of][2].get("cnt"))
            self.graph.add_edge(of, to)
        return pairs

    def _cell(self, gpu: int, buffer: str, offset: int) -> Cell:
        declared = int(self.root.findall("gpu")[self._place(gpu)].get(f"{buffer}_chunks", ""))
        cut = (buffer, self.coll) in (("i", "allgather"), ("o", "reducescatter"))
        real = declared if buffer == "s" else self.share if cut else self.chunks
        _need(0 <= offset < min(declared, real))
        if self.in_place and self.coll == "allgather" and buffer == "i":
            return gpu, "io", offset + gpu * self.share
        if self.in_place and self.coll == "reducescatter" and buffer == "o":
            return gpu, "io", offset + gpu * self.share
        return gpu, "io" if self.in_place and buffer != "s" else buffer, offset

    def _place(self, gpu: int) -> int:
        return next(at for at, each in enumerate(self.root.findall("gpu")) if each.get("id") == str(gpu))

    def _touched(self, index: int) -> Iterator[tuple[Cell | None, Cell | None, int]]:
        """Yield the cells read and written by a step, chunk by chunk."""
        gpu, _, each = self.steps[index]
        type, number = each.get("type", ""), int(each.get("cnt", ""))
        _need(number > 0)
        for at in range(number):
            src = (
                self._cell(gpu, each.get("srcbuf", ""), int(each.get("srcoff", "")) + at)
                if type not in ("r", "rcs")
                else None
            )
            dst = (
                self._cell(gpu, each.get("dstbuf", ""), int(each.get("dstoff", "")) + at)
                if type not in ("s", "rrs")
                else None
            )
            yield src, dst, at

    def _ensure_ordered(self) -> None:
        users = defaultdict[Cell, list[tuple[int, bool]]](list)
        for index in range(len(self.steps)):
            reads_target = self.steps[index][2].get("type") == "re"
            for src, dst, _ in self._touched(index):
                if src:
                    users[src].append((index, False))
                if dst:
                    users[dst].append((index, True))
                if dst and reads_target:
                    users[dst].append((index, False))
        for found in users.values():
            for one, writes in found:
                for other, other_writes in found:
                    if one < other and (writes or other_writes):
                        _need(nx.has_path(self.graph, one, other) or nx.has_path(self.graph, other, one))

    def _sums(self, pairs: dict[int, int]) -> bool:
        memory, number = dict[Cell, int](), defaultdict[tuple[int, int], int](lambda: self.draw.getrandbits(60))
        for gpu in range(self.gpus):
            for at in range(self.share if self.coll == "allgather" else self.chunks):
                place = at + gpu * self.share if self.coll == "allgather" and self.in_place else at
                memory[gpu, "io" if self.in_place else "i", place] = number[gpu, at]
        sent = dict[tuple[int, int], int]()
        graph, ready = self.graph, [node for node, degree in self.graph.in_degree() if degree == 0]
        left = dict(graph.in_degree())
        while ready:
            index = ready.pop(self.draw.randrange(len(ready)))
            for src, dst, at in list(self._touched(index)):
                type, value = self.steps[index][2].get("type", ""), 0
                value += sent[pairs[index], at] if type in ("r", "rcs", "rrs", "rrc", "rrcs") else 0
                for cell in (src, dst if type == "re" else None):
                    _need(cell is None or cell in memory)
                    value += memory[cell] if cell else 0
                if dst:
                    memory[dst] = value
                sent[index, at] = value
            for after in graph.successors(index):
                left[after] -= 1
                ready += [after] if left[after] == 0 else []
        return all(memory.get(cell) == value for cell, value in self._wanted(number))

    def _wanted(self, number: dict[tuple[int, int], int]) -> Iterator[tuple[Cell, int]]:
        for gpu in range(self.gpus):
            own = gpu * self.share
            for at in range(self.share if self.coll == "reducescatter" else self.chunks):
                place = "io" if self.in_place else "o"
                if self.coll == "allgather":
                    yield (gpu, place, at), number[at // self.share, at % self.share]
                elif self.coll == "allreduce":
                    yield (gpu, place, at), sum(number[peer, at] for peer in range(self.gpus))
                else:
                    offset = at + own if self.in_place else at
                    yield (gpu, place, offset), sum(number[peer, own + at] for peer in range(self.gpus))


def damaged_flows(data: dict[str, object], draw: random.Random) -> dict[str, object]:
    """Return TE-CCL's JSON with a flow dropped, doubled, moved to another epoch, or between other GPUs."""
    flows = [text.split() for text in data["7-Flows"]]  # type: ignore[attr-defined]
    at, what = draw.randrange(len(flows)), draw.randrange(4)
    if what == 0:
        del flows[at]
    elif what == 1:
        flows.append(list(flows[at]))
    elif what == 2:
        flows[at][9] = str(draw.randrange(4))
    else:
        other = draw.randrange(len(flows))
        flows[at][6], flows[other][6] = flows[other][6], flows[at][6]
    return {**data, "7-Flows": [" ".join(flow) for flow in flows]}


def flows_are_right(data: dict[str, object]) -> bool:
    """Return whether all GPUs have all chunks in the end, and each sends what it had before the epoch."""
    flows = [text.split() for text in data["7-Flows"]]  # type: ignore[attr-defined]
    names = [name.split()[1] for name in data["6-Demand_Met"]]  # type: ignore[attr-defined]
    have = {(name, name) for name in names}
    for epoch in sorted({int(flow[9]) for flow in flows}):
        now = [(flow[3], *flow[6].split("->")) for flow in flows if int(flow[9]) == epoch]
        if any((root, sender) not in have for root, sender, _ in now):
            return False
        have |= {(root, receiver) for root, _, receiver in now}
    return len(have) == len(names) ** 2


def written(data: dict[str, object]) -> str:
    """Return ``data`` as JSON text."""
    return json.dumps(data, indent=1)
