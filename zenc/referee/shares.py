"""All-to-alls as flows of shares of chunks: TE-CCL's JSON -> plans, and their judge.

A flow takes a volume of a chunk over a link; it leaves in an epoch, and takes another one at each switch. Volumes are
read as exact fractions. Which part of a chunk a flow takes is left open, so a chunk is like a liquid: first all of it
is at its source, no GPU sends on what has not come before, and at last all of it is at its destination. Such flows can
always be cut into paths, each of which takes one part of the chunk along.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction

from zenc.common.wording import count
from zenc.errors import Diagnostic
from zenc.referee.judge import Verdict, cut
from zenc.referee.model import Demand, ForeignPlan, ShareFlow
from zenc.referee.reading import PlanBuilder

MOST_OFF = Fraction(1, 100_000)
"""Most of a chunk that may be lost, or be too much, in all its flows: TE-CCL rounds each volume to six decimals."""
_N, _V, _S = r"(\d{1,9})", r"(\d{1,9}(?:\.\d{1,20})?(?:e-\d\d?)?)", r"([\d>-]{1,999})"
_HOP = re.compile(rf"{_N}->{_N} with volume {_V} in epoch {_N}(?: via switches {_S})?")
_DEMAND = re.compile(rf"Demand at {_N} for chunk {_N} from {_N} met by epoch {_N}")


class ShareReader(PlanBuilder):
    """Reads the flows of an all-to-all from ``paths``, in which they stand as often as they are taken."""

    def plan(self, listed: list[object], paths: dict[str, object]) -> ForeignPlan:
        """Return the plan; raises PlanError, also where the list of flows has others."""
        form = "Demand at GPU for chunk C from GPU met by epoch E"
        asked = {key: tuple(map(int, self.match(_DEMAND, key, "a key of the paths", form))) for key in paths}
        gpus = {name: gpu for gpu, name in enumerate(sorted({name for of in asked.values() for name in of[::2]}))}
        goal = self.goal("alltoall", len(gpus), self._chunks(asked.values(), len(gpus)))
        self.begin, self.line, self.taken = 0, 1, dict[str, list[Fraction]]()
        demands = list[Demand]()
        for key, (destination, chunk, source, by) in asked.items():
            line, flows = self._line_of(key), list[ShareFlow]()
            for way, path in enumerate(self.of(paths[key], list, f"'{key}'")):
                for hop, entry in enumerate(self.of(path, list, f"path {way} of '{key}'")):
                    epoch, text = entry if isinstance(entry, list) and len(entry) == 2 else (None, entry)
                    flow = self._flow(f"{key}, path {way}, hop {hop}", epoch, str(text), gpus)
                    self.taken.setdefault(f"Chunk {chunk} from {source} traveled over {text}", []).append(flow.volume)
                    flows.append(flow)
            demands.append(Demand(key, gpus[source], gpus[destination], by, line, tuple(flows)))
        of = self.source, self.place, "TE-CCL JSON", "", goal, (False,), (), (), dict[tuple[int, str], int]()
        names = tuple(f"gpu {name}" for name in gpus)
        return ForeignPlan(*of, names=names, warnings=self._merged(Counter(map(str, listed))), demands=tuple(demands))

    def _chunks(self, asked: Collection[tuple[int, ...]], size: int) -> int:
        """Return how many chunks each GPU has, its own among them; raises PlanError where this is no all-to-all."""
        to = {chunk: destination for destination, chunk, _, _ in asked}
        pairs = {(chunk, source) for _, chunk, source, _ in asked}
        each = Counter(to.values())
        whole = len(asked) == len(pairs) == len(to) * (size - 1) and len(each) == size and len(set(each.values())) == 1
        if not whole or any(source == at or to[chunk] != at for at, chunk, source, _ in asked):
            said = "the demands are no all-to-all: each gpu gets as many chunks of each other, of the same numbers"
            self._malformed(said)
        return len(to)

    def _flow(self, place: str, begins: object, text: str, gpus: Mapping[int, int]) -> ShareFlow:
        line = self._line_of(text)
        found = self.match(_HOP, text, place, "GPU->GPU with volume V in epoch E", line)
        sender, receiver, epoch = (int(found[at]) for at in (0, 1, 3))
        if sender not in gpus or receiver not in gpus or sender == receiver or begins != epoch:
            said = f"{place} does not lead from one gpu of a demand to another, or does not begin with its epoch"
            self._malformed(said, line)
        self.reserve(1, line)
        there = epoch + 1 + len(found[4].split("->")) if found[4] else epoch + 1
        return ShareFlow(place, line, Fraction(found[2]), gpus[sender], gpus[receiver], epoch, there)

    def _line_of(self, text: str) -> int:
        """Return the line of ``text``, which stands in the file behind those before."""
        at = self.source.text.find(text, self.begin)
        self.line += self.source.text.count("\n", self.begin, max(at, self.begin))
        self.begin = at if at >= 0 else len(self.source.text)
        return self.line

    def _merged(self, listed: Mapping[str, int]) -> tuple[Diagnostic, ...]:
        """Return a warning about flows that the list has once and several paths take; raises PlanError for others."""
        for text in {**listed, **self.taken}:
            if not 0 < listed.get(text, 0) <= len(self.taken.get(text, ())):
                said = "more often than paths take it" if text in listed else "not, and a path takes it"
                self._malformed(f"'7-Flows' has {text[:100]!r} {said}")
        twice = {text: volumes for text, volumes in self.taken.items() if len(volumes) > listed[text]}
        if not twice:
            return ()
        lacking = sum(sum(volumes[listed[text] :]) for text, volumes in twice.items())
        first, said = next(iter(twice)), f"'7-Flows' has {count(len(twice), 'flow')} once that several paths take, and "
        said += f"moves {float(lacking):g} chunks less than they do: {first!r} is of {len(twice[first])} paths"
        return (Diagnostic("merged-flow", said, severity="warning"),)


def judge_shares(plan: ForeignPlan) -> Verdict:
    """Return the first mistake of each chunk's flows, and else a warning by how much volumes are off."""
    played = [_played(plan, demand) for demand in plan.demands]
    found = [one for one in played if isinstance(one, Diagnostic)]
    off = [one for one in played if isinstance(one, Fraction) and one]
    if off and not found:
        said = f"{len(off)} of {count(len(played), 'chunk')} come whole but for {float(max(off)):g} at most, and "
        said += f"{float(sum(off)):g} in all: volumes are rounded, and {float(MOST_OFF):g} of a chunk is let pass"
        found.append(Diagnostic("rounded-shares", said, severity="warning"))
    return Verdict(tuple(cut(found)), ())


def _played(plan: ForeignPlan, demand: Demand) -> Diagnostic | Fraction:
    """Return the first mistake of the flows of a chunk, or by what part of it they are off."""
    held, lent = defaultdict[int, Fraction](Fraction, {demand.source: Fraction(1)}), Fraction(0)
    events = [(flow.there, False, at) for at, flow in enumerate(demand.flows)]
    events += [(flow.epoch, True, at) for at, flow in enumerate(demand.flows)]
    for epoch, sends, at in sorted(events):
        flow = demand.flows[at]
        gpu = flow.sender if sends else flow.receiver
        held[gpu] += -flow.volume if sends else flow.volume
        if held[gpu] < 0:
            lent, held[gpu] = lent - held[gpu], Fraction(0)
        if lent > MOST_OFF:
            said = f"{flow.place}: in epoch {epoch} {plan.gpu(gpu)} sends {float(flow.volume):g} to "
            said += f"{plan.gpu(flow.receiver)}, of which {float(lent):g} has not come before"
            return Diagnostic("unwritten-read", said, plan.place(flow.line))
        if gpu == demand.destination and not sends and flow.there > demand.by + 1:
            said = f"{flow.place}: it comes in epoch {flow.there - 1}"
            return Diagnostic("wrong-result", said, plan.place(flow.line))
    come = held.pop(demand.destination, Fraction(0))
    off = max(lent, abs(1 - come), sum(held.values(), Fraction(0)))
    if off > MOST_OFF:
        stays = "".join(f", {float(volume):g} stays at {plan.gpu(gpu)}" for gpu, volume in held.items() if volume)
        said = f"{demand.place}: {float(come):g} of it comes{stays}"
        return Diagnostic("wrong-result", said, plan.place(demand.line))
    return off


__all__ = ["ShareReader", "judge_shares"]
