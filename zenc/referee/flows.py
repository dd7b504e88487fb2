"""All-gathers as flows of chunks (and all-to-alls by ``shares``): TE-CCL's JSON and ForestColl's trees -> plans.

Such a file has no thread blocks. Each flow is a block that sends and one that receives; it begins when its sender has
the chunk. A GPU that gets a chunk again keeps the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from zenc.errors import Diagnostic, Source
from zenc.referee.judge import MOST_FOUND
from zenc.referee.model import BlockStep, ForeignPlan
from zenc.referee.reading import MOST_GPUS, MOST_STEPS, PlanBuilder, copies
from zenc.referee.shares import ShareReader
from zenc.topology.importers.xml import Element, parse_xml

_N = r"(\d{1,9})"
_FLOW = re.compile(rf"Chunk {_N} from {_N} traveled over {_N}->{_N} in epoch {_N}( via switches [\d, ]+)?")
_NUMBER = re.compile(r"(?:GPU|Chunk) (\d{1,9})")


@dataclass(frozen=True, slots=True)
class ChunkFlow:
    """The chunks ``keys`` of the whole tensor, of the gpu ``root``, on their way; an ``epoch`` of -1 is unknown."""

    place: str
    root: int
    keys: range
    sender: int
    receiver: int
    epoch: int
    line: int | None = None


def read_teccl(data: bytes, source: Source) -> ForeignPlan:
    """Return the all-gather in TE-CCL's JSON; raises PlanError."""
    reader = _FlowReader(source)
    return reader.teccl(reader.json(data))


def read_forestcoll(data: bytes, source: Source) -> ForeignPlan:
    """Return the all-gather of ForestColl's trees; raises PlanError."""
    return _FlowReader(source).forestcoll(parse_xml(data, source, MOST_STEPS, "plan"))


class _FlowReader(PlanBuilder):
    def teccl(self, data: dict[str, object]) -> ForeignPlan:
        entries = self.of(data.get("7-Flows", data.get("6-Flows")), list, "'7-Flows'")
        if "6-Demand_Met" not in data:
            paths = self.of(data.get("8-Chunk paths", data.get("7-chunk paths")), dict, "'8-Chunk paths'")
            return ShareReader(self.source).plan(entries, paths)
        demand = self._demand(data)
        share = self._share(demand)
        names = sorted(demand)
        at, flows = {name: gpu for gpu, name in enumerate(names)}, list[ChunkFlow]()
        for entry, text in enumerate(entries):
            place = f"7-Flows, entry {entry}"
            found = self.match(_FLOW, text, place, "Chunk C from GPU traveled over GPU->GPU in epoch E")
            chunk, root, sender, receiver, epoch = map(int, found[:5])
            for name in (root, sender, receiver):
                if name not in at:
                    self._malformed(f"{place} names {name}, which is no gpu of '6-Demand_Met'")
            if chunk >= share:
                self._malformed(f"{place} is about chunk {chunk}, and gpus have {share}")
            keys = range(at[root] * share + chunk, at[root] * share + chunk + 1)
            flows.append(ChunkFlow(place, at[root], keys, at[sender], at[receiver], epoch))
        return self.plan("TE-CCL JSON", share, [f"gpu {name}" for name in names], flows)

    def _demand(self, data: dict[str, object]) -> dict[int, dict[int, set[int]]]:
        """Return which chunks of which gpu each gpu is to get."""
        demand: dict[int, dict[int, set[int]]] = {}
        for gpu, sources in self.of(data.get("6-Demand_Met"), dict, "'6-Demand_Met'").items():
            wanted = demand.setdefault(self._named(gpu), {})
            for root, chunks in self.of(sources, dict, f"what {gpu} demands").items():
                wanted[self._named(root)] = {self._named(chunk) for chunk in self.of(chunks, dict, f"chunks of {root}")}
        if not 1 <= len(demand) <= MOST_GPUS:
            self._malformed(f"'6-Demand_Met' has {len(demand)} gpus, and not 1 to {MOST_GPUS:,}")
        return demand

    def _share(self, demand: dict[int, dict[int, set[int]]]) -> int:
        """Return how many chunks each gpu gets of each other; raises PlanError where that differs."""
        first = next((chunks for wanted in demand.values() for chunks in wanted.values()), {0})
        for gpu, wanted in demand.items():
            if set(wanted) != set(demand) - {gpu} or any(chunks != first for chunks in wanted.values()):
                self._malformed(f"gpu {gpu} does not demand the same chunks of all others: this is no all-gather")
        if first != set(range(len(first))):
            self._malformed(f"chunks are not numbered from 0 to {len(first) - 1}")
        return len(first)

    def _named(self, text: str) -> int:
        return int(self.match(_NUMBER, text, "a key of '6-Demand_Met'", "GPU N' or 'Chunk N")[0])

    def forestcoll(self, root: Element) -> ForeignPlan:
        share = self.number(root, "nchunkspernode", 1)
        trees = [tree for tree in root.children if tree.tag == "tree"]
        sends = [[send for send in tree.children if send.tag == "send"] for tree in trees]
        seen = [tree.attributes.get("root", "") for tree in trees] + [
            send.attributes.get(way, "") for each in sends for send in each for way in ("src", "dst")
        ]
        names = sorted(set(seen), key=_natural)
        if not 1 <= len(names) <= MOST_GPUS or "" in names:
            self._malformed(f"it has trees among {len(names)} gpus, or a tree or send without a name", root.line)
        at, taken, flows = {name: gpu for gpu, name in enumerate(names)}, [0] * len(names), list[ChunkFlow]()
        for number, tree in enumerate(trees):
            gpu, chunks = at[tree.attributes["root"]], self.number(tree, "nchunks", 1)
            place, first = f"tree {number} of {names[gpu]}", gpu * share + taken[gpu]
            for send in sends[number]:
                sender, receiver = at[send.attributes["src"]], at[send.attributes["dst"]]
                said = f"{place}, send {names[sender]} to {names[receiver]}"
                flows.append(ChunkFlow(said, gpu, range(first, first + chunks), sender, receiver, -1, send.line))
            taken[gpu] += chunks
            if taken[gpu] > share:
                self._malformed(f"the trees of {names[gpu]} have more than {share} chunks", tree.line)
        return self.plan("ForestColl trees", share, [f"gpu {name}" for name in names], flows)

    def plan(self, format: str, share: int, names: Sequence[str], flows: Sequence[ChunkFlow]) -> ForeignPlan:
        """Return the plan of ``flows``, each with a block at its sender and one at its receiver."""
        goal = self.goal("allgather", len(names), share * len(names))
        order = sorted(range(len(flows)), key=lambda at: flows[at].epoch)
        comes: dict[tuple[int, int], int] = {}
        for at in order:
            self.reserve(len(flows[at].keys), flows[at].line)
            for key in flows[at].keys:
                comes.setdefault((key, flows[at].receiver), at)
        received = {at: 2 * place + 1 for place, at in enumerate(order)}
        warnings = list[Diagnostic]()
        for at in order:
            flow, channel = flows[at], (flows[at].sender, flows[at].receiver, at)
            if flow.sender == flow.receiver:
                self._malformed(f"{flow.place} leads from a gpu to itself", flow.line)
            asked = () if flow.sender == flow.root else [(key, flow.sender) for key in flow.keys]
            brought = sorted({comes[key] for key in asked if key in comes})
            for other in brought:
                self._ensure_order(flow, flows[other], names[flow.sender])
            first, number = flow.keys[0], len(flow.keys)
            new = flow.receiver != flow.root and comes[first, flow.receiver] == at
            if not new:
                said = f"{flow.place} brings a chunk that {names[flow.receiver]} has before"
                warnings.append(Diagnostic("redundant-flow", said, self.place(flow.line), severity="warning"))
            sent = copies(None, ((flow.sender, "o", first),), number, False)
            kept = copies((flow.receiver, "o", first) if new else None, (), number, True)
            after = tuple(received[other] for other in brought)
            send = BlockStep(flow.place, len(self.blocks), sent, after, (), (channel,), line=flow.line)
            self.close(flow.sender, self.add(send))
            receive = BlockStep(flow.place, len(self.blocks), kept, (), (channel,), line=flow.line)
            self.close(flow.receiver, self.add(receive))
        room = {(gpu, buffer): goal.chunks(buffer) for gpu in range(goal.size) for buffer in "io"}
        blocks, steps = tuple(self.blocks), tuple(self.steps)
        of = self.source, self.place, format, "", goal, (True,), blocks, steps, room, "the way of flow {2}"
        return ForeignPlan(*of, tuple(names), 1, tuple(warnings[:MOST_FOUND]))

    def _ensure_order(self, flow: ChunkFlow, other: ChunkFlow, name: str) -> None:
        """Raise PlanError unless ``other``, which brings what ``flow`` sends, comes in an epoch before it."""
        if 0 <= flow.epoch <= other.epoch:
            said = f"{flow.place}: in epoch {flow.epoch} {name} does not have the chunk, "
            said += f"which comes by {other.place} in epoch {other.epoch}"
            self._fail("unwritten-read", said, flow.line)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key by which texts with numbers sort as people do."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", text)]


__all__ = ["read_forestcoll", "read_teccl"]
