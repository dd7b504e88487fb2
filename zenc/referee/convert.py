"""A proved plan of another program -> a plan of zenc, which runs on any gradient, dense or sparse.

Thread blocks, channels and scratch are gone: a chunk keeps its route, who sent whose contributions to
whom. In the pushes of a plan a rank sends all that it holds of a part, so a message must bring what its sender has by
then: its own contribution, and those that came in steps before. Steps are the least that keep to this. Complete chunks
go by pulls. Parts are as many as ranks, and chunks of one route are one part, or several. Of an all-gather the pushes
are its routes turned round.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from zenc.errors import Diagnostic, PlanError
from zenc.language import schedule as s
from zenc.plan.ir import Phase, PhaseKind, Plan, Tier
from zenc.referee.judge import Transfer, gpus_text
from zenc.referee.model import ForeignPlan
from zenc.scheme.model import Aggregation, Format, Partition, Permutation, Unit

SEED = 24301
_DOCS = {
    "allreduce": "An all-reduce in {}, with its moves in steps.",
    "allgather": "An all-gather in {}: the pull brings sums as it does, and the push before it is its reverse.",
}
Hop = tuple[int, int, int]
"""Step from 1, sender and receiver."""
Route = tuple[tuple[Hop, ...], tuple[Hop, ...]]
"""The hops of the pushes and of the pulls."""


def convert(plan: ForeignPlan, transfers: Sequence[Transfer]) -> Plan:
    """Return the plan of zenc that does what ``plan`` does, among its number of ranks.

    Raises PlanError (``not-convertible``) for another collective, or routes that a plan of zenc can't have.
    """
    goal, by_key = plan.goal, defaultdict[int, list[tuple[int, int, int]]](list)
    if goal.collective not in ("allreduce", "allgather"):
        raise _refused(plan, f"it is of the collective {goal.collective}: plans that run are all-reduces", None)
    for transfer in transfers:
        if len(transfer.value) != 1 or transfer.value[0][2]:
            raise _refused(plan, "a message mixes chunks, or has a contribution twice", None)
        key, some, _ = transfer.value[0]
        by_key[key].append((transfer.sender, transfer.receiver, some))
    make = _summed if goal.collective == "allreduce" else _gathered
    routes = {key: make(plan, key, by_key.get(key, [])) for key in range(goal.whole)}
    return _plan(plan, _parts(plan, routes))


def _refused(plan: ForeignPlan, said: str, key: int | None) -> PlanError:
    at = "" if key is None else f"chunk {key // plan.slices}: "
    help = "it is proved as it is; write its moves as a scheme to run it"
    return PlanError(
        Diagnostic("not-convertible", f"{plan.source.name} can't be a plan of zenc: {at}{said}", help=help)
    )


def _summed(plan: ForeignPlan, key: int, messages: Iterable[tuple[int, int, int]]) -> Route:
    """Return the route of a chunk that is summed."""
    size, everyone = plan.goal.size, (1 << plan.goal.size) - 1
    pushes, comes = list[tuple[int, int, int]](), defaultdict[int, list[int]](list)
    held, pulled, pulls = [1 << rank for rank in range(size)], dict[int, int](), list[Hop]()
    for sender, receiver, some in messages:
        if some == everyone:
            if held[receiver] != everyone and receiver not in pulled:
                pulled[receiver] = pulled.get(sender, 0) + 1
                pulls.append((pulled[receiver], sender, receiver))
        elif some & held[receiver]:
            twice = gpus_text(plan, some & held[receiver])
            raise _refused(plan, f"{plan.gpu(receiver)} is sent the contribution of {twice} again", key)
        else:
            held[receiver] |= some
            comes[receiver].append(len(pushes))
            pushes.append((sender, receiver, some))
    return tuple(sorted(_levels(plan, key, pushes, comes))), tuple(sorted(pulls))


def _levels(
    plan: ForeignPlan, key: int, pushes: Sequence[tuple[int, int, int]], comes: Mapping[int, list[int]]
) -> list[Hop]:
    """Return the hops of pushes in their steps: behind what they bring on, and not behind what they don't."""
    behind, before = list[tuple[int, int]](), list[tuple[int, int]]()
    for index, (sender, _, some) in enumerate(pushes):
        brought = [other for other in comes.get(sender, ()) if pushes[other][2] & ~some == 0]
        union = 1 << sender
        for other in brought:
            union |= pushes[other][2]
        if union != some:
            said = f"{plan.gpu(sender)} sends the contributions of {gpus_text(plan, some)}, and not all that it holds"
            raise _refused(plan, said, key)
        behind += [(index, other) for other in brought]
        before += [(other, index) for other in comes.get(sender, ()) if other not in brought]
    level = [1] * len(pushes)
    for _ in range(len(pushes) + 2):
        found = list(level)
        for later, sooner in behind:
            level[later] = max(level[later], level[sooner] + 1)
        for later, sooner in before:
            level[later] = max(level[later], level[sooner])
        if level == found:
            return [(level[index], sender, receiver) for index, (sender, receiver, _) in enumerate(pushes)]
    raise _refused(plan, "no order of steps lets each gpu send all that it holds", key)


def _gathered(plan: ForeignPlan, key: int, messages: Iterable[tuple[int, int, int]]) -> Route:
    """Return the route of a chunk that all get, and before it, turned round, that of its sum."""
    root, parent, depth = key // plan.goal.share, dict[int, int](), {key // plan.goal.share: 0}
    for sender, receiver, _ in messages:
        if receiver != root and receiver not in parent:
            parent[receiver], depth[receiver] = sender, depth[sender] + 1
    ready = dict.fromkeys(depth, 1)
    for rank in sorted(parent, key=lambda rank: -depth[rank]):
        ready[parent[rank]] = max(ready[parent[rank]], ready[rank] + 1)
    pushes = sorted((ready[rank], rank, above) for rank, above in parent.items())
    return tuple(pushes), tuple(sorted((depth[rank], above, rank) for rank, above in parent.items()))


def _parts(plan: ForeignPlan, routes: Mapping[int, Route]) -> list[Route]:
    """Return the route of each part: as many as ranks, or one where all chunks go the same way."""
    keys: dict[Route, int] = defaultdict(int)
    for key in sorted(routes):
        keys[routes[key]] += 1
    if len(keys) == 1:
        return list(keys)
    parts = list[Route]()
    for route, number in keys.items():
        times, rest = divmod(number * plan.goal.size, plan.goal.whole)
        if rest:
            said = (
                f"{number} of {plan.goal.whole} chunks go one way, which is no whole number of {plan.goal.size} parts"
            )
            raise _refused(plan, said, None)
        parts += [route] * times
    return parts


def _plan(plan: ForeignPlan, parts: Sequence[Route]) -> Plan:
    partition = Partition.PARALLELISM if len(parts) > 1 else Partition.CENTRALIZATION
    tier = Tier("", None, "point_to_point", partition, Aggregation.INCREMENTAL)
    push, pull = (_block([route[way] for route in parts]) for way in (0, 1))
    name = re.sub(r"\W+", "_", plan.name.lower()).strip("_")[:40] or plan.goal.collective
    return Plan(
        scheme=name if name[0].isalpha() else f"plan_{name}",
        doc=_DOCS[plan.goal.collective].format(plan.format),
        parameters=(),
        size=plan.goal.size,
        mapping=Permutation(SEED),
        unit=Unit.AUTO,
        tiers=(tier,),
        phases=(Phase(PhaseKind.PUSH, push, Format.AUTO, tier), Phase(PhaseKind.PULL, pull, Format.AUTO, tier)),
    )


def _block(hops: Sequence[tuple[Hop, ...]]) -> s.Block:
    """Return the steps of a phase; ``hops`` are those of each part."""
    moves: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for part, of_part in enumerate(hops):
        for step, sender, receiver in of_part:
            moves[step][sender, receiver].append(part)
    return tuple(s.Step(tuple(_sends(moves[step], len(hops)))) for step in sorted(moves))


def _sends(moves: Mapping[tuple[int, int], list[int]], parts: int) -> Iterable[s.Send]:
    for (sender, receiver), sent in sorted(moves.items()):
        where = s.Binary("==", s.Variable("rank"), s.Integer(sender))
        for first, last in _ranges(sent):
            what = s.PartRange(s.Integer(first), s.Integer(last)) if last > first else s.Part(s.Integer(first))
            yield s.Send(s.All() if last - first + 1 == parts else what, s.Integer(receiver), where=where)


def _ranges(parts: Sequence[int]) -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    for part in parts:
        if found and found[-1][1] == part - 1:
            found[-1] = found[-1][0], part
        else:
            found.append((part, part))
    return found
