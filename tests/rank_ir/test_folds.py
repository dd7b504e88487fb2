"""Counts for all ranks at once equal counts from their programs, statement by statement.

Exact bytes, memory, counts of contributors and kernels are computed with arrays over all ranks, for speed; here they
are folds over rank programs. Bytes and counts are equal.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, FORMATS, INNER, scheme_text, tiered_text
from tests.support.fuzz import tried
from tests.support.plans import plan_of
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.analysis.exact_traffic import weigh
from zenc.analysis.expected_bytes import ExpectedBytes, expected_bytes
from zenc.analysis.memory_model import MemoryModel
from zenc.gradients.index_sets import Gradients, gradients
from zenc.gradients.profile_generators import uniform
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Phase, Plan
from zenc.plan.requirements import allowed
from zenc.plan.unroll import expand
from zenc.rank_ir.ir import Agree, Carries, Exchange, Fill, Merge, RankPhase, RankProgram, Sparsify, Split, made_by
from zenc.rank_ir.lower import lower_all
from zenc.scheme.model import Format
from zenc.simulator.calibration import bandwidth_only, linear_kernel
from zenc.simulator.contributor_counts import play
from zenc.simulator.predict import predict
from zenc.topology.shapes import ring
from zenc.verify.proof import prove
from zenc.verify.provenance import Deliveries
from zenc.wire.formats import padded, wire_layout
from zenc.wire.partitioning import UnitPartition, cut, owned
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

Bits = np.ndarray
Key = tuple[int, int, int]
"""Number of the step, sender, receiver."""


@dataclass(frozen=True)
class Occupied:
    """Slots of a segment [slots]: those that travel, and those that somebody contributed."""

    there: Bits
    given: Bits


def filled(segment: Occupied, format: Format) -> Occupied:
    """Return all slots, or those of blocks that have any."""
    if format is Format.DENSE:
        return Occupied(np.ones_like(segment.there), segment.given)
    block = format.block
    starts = range(0, len(segment.there), block)
    blocks = [np.full(len(part := segment.there[at : at + block]), part.any()) for at in starts]
    return Occupied(np.concatenate(blocks) if blocks else segment.there, segment.given)


class Rank:
    """A rank's segments, while its program is played."""

    def __init__(self, what: RankProgram, by: UnitPartition, of: Gradients) -> None:
        mine = np.isin(np.arange(of.units), of.held[what.rank])
        self.parts = [np.zeros(size, dtype=bool) for size in by.sizes.tolist()]
        for unit in of.held[what.rank].tolist():
            self.parts[by.part[unit]][by.slot[unit]] = True
        self.what, self.segments = what, dict[int, Occupied]()
        for number in what.pack.results:
            bits = mine if what.segments[number].part < 0 else self.parts[what.segments[number].part]
            self.segments[number] = Occupied(bits, bits)

    def exchanges(self) -> Iterator[tuple[RankPhase, Exchange]]:
        """Play the statements between exchanges, and stop at each exchange."""
        for phase in self.what.phases:
            for statement in phase.statements:
                match statement:
                    case Exchange():
                        yield phase, statement
                    case Merge(result, inputs):
                        each = [self.segments[number] for number in inputs]
                        there = np.logical_or.reduce([one.there for one in each])
                        self.segments[result] = Occupied(there, np.logical_or.reduce([one.given for one in each]))
                    case Fill(result, segment, format):
                        self.segments[result] = filled(self.segments[segment], format)
                    case Sparsify(result, segment):
                        self.segments[result] = Occupied(self.segments[segment].given, self.segments[segment].given)
                    case Split(results):
                        for part, number in enumerate(results):
                            self.segments[number] = Occupied(self.parts[part], self.parts[part])
                    case Agree():
                        pass


def message_bytes(phase: RankPhase, segments: list[Occupied], unit_bytes: int) -> int:
    """Return the bytes of a message of ``phase``, 0 if it is not sent."""
    if phase.carries is Carries.ROWS:
        values = sum(padded(int(each.there.sum()) * unit_bytes) for each in segments)
        return values + MESSAGE_HEADER_BYTES if values else 0
    width = 0 if phase.carries is Carries.SETS else unit_bytes
    bodies = [wire_layout(phase.format, len(each.there), int(each.there.sum()), width)[2] for each in segments]
    return MESSAGE_HEADER_BYTES + sum(SEGMENT_HEADER_BYTES + body for body in bodies)


def folded(plan: Plan, of: Gradients) -> dict[Key, int]:
    """Return the bytes of all messages of a call, by the programs of all ranks."""
    parts = plan.parts(of.size)
    by = owned(of.held, of.units, parts) if plan.announces else cut(plan.mapping, of.units, of.width, parts)
    ranks = [Rank(what, by, of) for what in lower_all(plan, of.size)]
    steps = [rank.exchanges() for rank in ranks]
    waiting = {rank.what.rank: found for rank, step in zip(ranks, steps, strict=True) if (found := next(step, None))}
    bytes: dict[Key, int] = {}
    while waiting:
        number = min(exchange.number for _, exchange in waiting.values())
        now = {rank: found for rank, found in waiting.items() if found[1].number == number}
        sent: dict[tuple[int, int], list[Occupied]] = {}
        for rank, (phase, exchange) in now.items():
            for message in exchange.sends:
                sent[rank, message.peer] = [ranks[rank].segments[segment] for segment in message.segments]
                weight = message_bytes(phase, sent[rank, message.peer], of.unit_bytes)
                bytes |= {(number, rank, message.peer): weight} if weight else {}
        for rank, (_, exchange) in now.items():
            for message in exchange.receives:
                found = zip(message.segments, sent[message.peer, rank], strict=True)
                ranks[rank].segments |= dict(found)
            following = next(steps[rank], None)
            waiting = {**waiting, rank: following} if following else {k: v for k, v in waiting.items() if k != rank}
    return bytes


def counted(plan: Plan, of: Gradients) -> dict[Key, int]:
    """Return the bytes of all messages as ``weigh`` counts them, with rounds numbered from phase to phase."""
    rounds = expand(plan, of.size)
    number = {(phase.name, k): step for step, (phase, k, _) in enumerate(rounds, 1)}
    found: dict[Key, int] = {}
    for each in weigh(plan, rounds, of).messages:
        step = number[each.phase, each.number]
        ends = zip(each.src.tolist(), each.dst.tolist(), each.bytes.tolist(), strict=True)
        found |= {(step, src, dst): size for src, dst, size in ends}
    return found


def drawn(size: int, units: int, width: int, density: float, seed: int) -> Gradients:
    rng = np.random.default_rng(seed)
    return gradients(units, width, "f16", [np.flatnonzero(rng.random(units) < density) for _ in range(size)])


DRAWS = {
    "units": st.integers(1, 150),
    "width": st.integers(1, 5),
    "density": st.sampled_from((0.0, 0.02, 0.3, 1.0)),
    "seed": st.integers(0, 99),
}


@settings(max_examples=tried(80), deadline=None)
@given(
    combination=st.sampled_from(COMBINATIONS),
    push=st.sampled_from(FORMATS),
    pull=st.sampled_from(FORMATS),
    size=st.integers(1, 7),
    **DRAWS,
)
def test_bytes_of_all_formats(combination, push, pull, size, units, width, density, seed):
    plan, of = plan_of(scheme_text(*combination, push, pull), size), drawn(size, units, width, density, seed)
    assert folded(plan, of) == counted(plan, of)


@settings(max_examples=tried(40), deadline=None)
@given(inner=st.sampled_from(INNER), outer=st.sampled_from(COMBINATIONS), members=st.integers(1, 3), **DRAWS)
def test_bytes_of_tiers(inner, outer, members, units, width, density, seed):
    plan = plan_of(tiered_text((2,), (inner, outer)), 2 * members, scheme="tiered")
    of = drawn(2 * members, units, width, density, seed)
    assert folded(plan, of) == counted(plan, of)


def size_of(plan: Plan, least: int = 6) -> int:
    """Return ``least`` ranks, or the next number that is allowed."""
    return allowed(plan, range(least, 65), most=1)[0]


@pytest.mark.one_in(1)
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped(name: str) -> None:
    plan = plan_of_shipped(name)
    for density in (0.03, 0.6):
        of = drawn(size_of(plan), 301, 3, density, 7)
        assert folded(plan, of) == counted(plan, of)


@pytest.mark.one_in(1)
@pytest.mark.parametrize("name", SHIPPED)
def test_contributors_are_counted_as_programs_have_them(name: str) -> None:
    """Each message has the right parts, with the number of ranks that contributed to each piece."""
    plan = plan_of_shipped(name)
    size = size_of(plan)
    wanted: dict[Key, Counter[tuple[int, int]]] = defaultdict(Counter)
    for what in lower_all(plan, size):
        for phase in what.phases:
            for exchange in phase.exchanges:
                for message in exchange.receives:
                    pieces = [what.segments[segment] for segment in message.segments]
                    wanted[exchange.number, message.peer, what.rank].update(
                        (max(p.part, 0), len(p.ranks)) for p in pieces
                    )
    found: dict[Key, Counter[tuple[int, int]]] = defaultdict(Counter)
    for number, step in enumerate(play(plan, size), 1):
        for some in step.carried:
            columns = (some.src, some.dst, some.part, some.contributors, some.pieces)
            for src, dst, part, ranks, pieces in zip(*(column.tolist() for column in columns), strict=True):
                found[number, src, dst][part, ranks] += pieces
    assert found == wanted


@pytest.mark.one_in(1)
@pytest.mark.parametrize("least", [8, 24])
@pytest.mark.parametrize("name", SHIPPED)
def test_kernels_run_on_as_many_segments(name: str, least: int) -> None:
    """The busiest rank searches as many segments, and writes and reads as many indices, as its program says."""
    plan = plan_of_shipped(name)
    size, of = size_of(plan, least), uniform(0.01, 400_000)
    kernels, slot = bandwidth_only("kernels"), linear_kernel(0.0, slot=1.0)
    expected, programs = ExpectedBytes(plan, size, of), lower_all(plan, size)
    held = (expected.result_units if plan.announces else of.units) / plan.parts(size)
    merged = predict(plan, size, of, None, replace(kernels, merge=slot)).kernels
    assert merged == pytest.approx(held * max(map(looked_through, programs)), rel=1e-9)
    sets = expected.set_slots if expected.by_directory else of.units if plan.announces else held
    indexed = predict(plan, size, of, None, replace(kernels, index=slot)).kernels
    assert indexed == pytest.approx(max(slots_of_indices(what, sets, held) for what in programs), rel=1e-9)


def looked_through(what: RankProgram) -> int:
    """Return how many segments a rank sums by searching for their units; dense ones have all."""
    sparse = [each for phase in what.phases if phase.format is not Format.DENSE for each in phase.statements]
    return sum(len(each.segments) for each in sparse if isinstance(each, Merge))


def slots_of_indices(what: RankProgram, sets: float, values: float) -> float:
    """Return the slots of written and read indices: ``values`` in segments with values, else ``sets``."""
    found = 0.0
    for phase in what.phases:
        for each in phase.exchanges if phase.carries is not Carries.ROWS else ():
            written = len({segment for message in each.sends for segment in message.segments})
            read = sum(len(message.segments) for message in each.receives)
            found += (written + read) * (values if phase.carries is Carries.SEGMENTS else sets)
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_memory_of_shipped_schemes(name: str) -> None:
    plan = plan_of_shipped(name)
    assert other_memory(plan, size_of(plan)) == []


@pytest.mark.parametrize("size", [1, 3, 4, 6])
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda each: "-".join(str(word).split()[-1] for word in each))
def test_memory_of_all_combinations(combination: tuple[str, str, str], size: int) -> None:
    assert other_memory(plan_of(scheme_text(*combination), size), size) == []


def other_memory(plan: Plan, size: int) -> list[tuple[object, ...]]:
    """Return ranks whose number of segments after a step or at the end is not that of their programs."""
    rounds, found, wrong = expand(plan, size), list[list[int]](), list[tuple[object, ...]]()
    load = GradientSpec(64 * plan.parts(size), 1, "f32", 1.0)
    model = MemoryModel(plan, rounds, expected_bytes(plan, size, load))

    def observe(phase: Phase, number: int, moved: Deliveries) -> None:
        model.observe(phase, number, moved)
        found.append((model.held // int(model.table[1])).tolist())

    prove(plan, rounds, observe)
    model.capacity(ring(size))
    for what in lower_all(plan, size):
        counts = live(what).items()
        wrong += [(what.rank, step, count) for step, count in counts if found[step - 1][what.rank] != count]
        if model.held[what.rank] != (len(what.expand.segments) + kept(what)) * model.table[1]:
            wrong.append((what.rank, "end"))
    return wrong


def live(what: RankProgram) -> dict[int, int]:
    """Return step -> number of live segments after it, before separate ones are merged."""
    here, counts = set(what.pack.results) - set(what.pack.frees), dict[int, int]()
    for phase in what.phases:
        step = 0
        for statement in phase.statements:
            here = (here | set(made_by(statement))) - set(statement.frees)
            step = statement.number if isinstance(statement, Exchange) else step
            if isinstance(statement, Exchange) or (step and not phase.one_shot):
                counts[step] = sum(what.segments[segment].part >= 0 for segment in here) + kept(what)
    return counts


def kept(what: RankProgram) -> int:
    """Return how many segments the gradient counts for while it is still in one piece: by holders."""
    return what.parts if what.phases[0].carries is Carries.SETS else 0
