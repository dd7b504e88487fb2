"""The messages of every step, and the classes of equal ones.

    ClassProgram = sizes member link_sizes link_member Stage*
    Stage        = Phase number SegmentCounts, (bytes src dst out into)*, (flow link times)*   # of flows, on links

A rank's figures hold for all of its class: ``sizes`` [classes] ranks, of which ``member`` [classes] is one. A
flow of a stage stands for all messages of that stage with as many ``bytes`` between two classes: ``out`` of them leave
each rank of class ``src``, and ``into`` come to each of class ``dst``. It loads each link of a class ``times`` over.

Ranks are alike that send and receive the same, step for step, to and from ranks that are alike, over links that are:
colour refinement, which ends with the coarsest such classes. All of a class then act at the same times in any
simulation that is fair to messages, so nothing is lost by simulating one of each. ``apart`` makes every rank a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase
from zenc.simulator.contributor_counts import CountedStep, SegmentCounter, SegmentCounts, play
from zenc.simulator.network import Network
from zenc.wire.mix import Words, mix

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A step; arrays are [flows], and ``flow``, ``link``, ``times`` [flows on links]; ``segments`` [classes]."""

    phase: Phase
    number: int
    bytes: Floats
    src: Ints
    dst: Ints
    out: Floats
    into: Floats
    flow: Ints
    link: Ints
    times: Floats
    segments: SegmentCounts


@dataclass(frozen=True, slots=True, eq=False)
class ClassProgram:
    """A call by classes; ``link_sizes`` and ``link_member`` are for links as ``sizes`` and ``member`` are for ranks."""

    sizes: Ints
    member: Ints
    link_sizes: Ints
    link_member: Ints
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MessageClasses:
    """The messages of a step, arrays [messages], ``bytes`` with headers; ``segments`` [ranks]."""

    step: CountedStep
    src: Ints
    dst: Ints
    bytes: Floats
    segments: SegmentCounts


def messages(expected: ExpectedBytes, step: CountedStep) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield sender, receiver and bytes of each message of ``step``, [messages] each, with headers; some at a time."""
    size = expected.size
    for carried in step.carried:
        src, dst = carried.src, carried.dst
        rows = expected.rows(step.phase, carried.part, carried.pieces, carried.contributors, carried.owned)
        pair = src * size + dst
        if _repeats(pair, size):
            pair, index = np.unique(pair, return_inverse=True)
            rows = np.asarray(np.bincount(index.reshape(-1), rows, minlength=len(pair)), np.float64)
            src, dst = np.divmod(pair, size)
        yield src, dst, np.round(expected.messages(step.phase, rows), 3)


def _repeats(pair: Ints, size: int) -> bool:
    """Return whether a pair of ranks occurs twice; millions are not sorted, which would take longer than all else."""
    if len(pair) < 8 * size:
        return len(np.unique(pair)) < len(pair)
    seen = np.zeros(size * size, dtype=bool)
    seen[pair] = True
    return int(np.count_nonzero(seen)) < len(pair)


def program(expected: ExpectedBytes, network: Network, apart: bool = False) -> ClassProgram:
    """Return the stages of the plan that ``expected`` weighs, on ``network``."""
    if not apart and network.flat:
        alike = _if_all_alike(expected)
        if alike is not None:
            return alike
    steps = []
    for step in play(expected.plan, expected.size):
        counter, watched = _watched(expected, step)
        found = list(messages(expected, watched))
        src, dst, bytes = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        steps.append(MessageClasses(step, src, dst, bytes, counter.counts))
    return _classes(steps, network, apart)


def _watched(expected: ExpectedBytes, step: CountedStep) -> tuple[SegmentCounter, CountedStep]:
    """Return a counter, and ``step`` that it counts while it is used up."""
    counter = SegmentCounter(expected.plan, expected.size, step.phase)
    return counter, replace(step, carried=counter.watch(step.carried))


def _if_all_alike(expected: ExpectedBytes) -> ClassProgram | None:
    """Return the program of one class, where every rank sends and receives the same in every step; otherwise None."""
    size, stages = expected.size, list[Stage]()
    for each in play(expected.plan, size):
        sums, mine = np.zeros((4, size)), list[Floats]()
        counter, step = _watched(expected, each)
        for src, dst, bytes in messages(expected, step):
            marks = _halves(mix(bytes.view(np.uint64)))
            for row, (ends, mark) in zip(sums, ((e, m) for e in (src, dst) for m in marks), strict=True):
                row += np.bincount(ends, mark, minlength=size)
            mine.append(bytes[src == 0])
        if (sums != sums[:, :1]).any() or not counter.counts.alike:
            return None
        stages.append(_alone(step, np.concatenate(mine), counter.counts.of(np.zeros(1, np.int64))))
    one = np.ones(1, dtype=np.int64)
    return ClassProgram(one * size, one * 0, np.array([size, size]), np.array([0, size]), tuple(stages))


def _halves(words: Words) -> tuple[Floats, Floats]:
    """Return two whole numbers below 2^24 for each word; their sums are exact, and differ for different collections."""
    return (words >> np.uint64(40)).astype(np.float64), (words & np.uint64(0xFFFFFF)).astype(np.float64)


def _alone(step: CountedStep, bytes: Floats, segments: SegmentCounts) -> Stage:
    """Return the stage of a rank like all others: its links carry its sends, and as much that it receives."""
    kinds, counts = np.unique(bytes, return_counts=True)
    flows, count = np.arange(len(kinds)), counts.astype(np.float64)
    ends = flows * 0
    both = np.r_[flows, flows], np.r_[ends, ends + 1], np.r_[count, count]
    return Stage(step.phase, step.number, kinds, ends, ends, count, count, *both, segments)


@dataclass(slots=True)
class _All:
    """The messages of all steps, one after another; ``pair`` and ``link`` are as ``Network.over`` returns them."""

    number: Ints
    src: Ints
    dst: Ints
    bytes: Floats
    pair: Ints
    link: Ints


def _classes(steps: list[MessageClasses], network: Network, apart: bool) -> ClassProgram:
    every = _all(steps, network)
    if apart:
        ranks, links = np.arange(network.size), np.arange(len(network.bandwidths))
        flows = np.arange(len(every.src))
    else:
        ranks, links, flows = _refined(every, network, [step.segments.colours for step in steps])
    return _quotient(steps, every, ranks, links, flows)


def _all(steps: list[MessageClasses], network: Network) -> _All:
    number = np.repeat(np.arange(len(steps)), [len(step.src) for step in steps])
    empty = np.zeros(0, dtype=np.int64)
    src, dst = (np.concatenate([empty, *(getattr(step, name) for step in steps)]) for name in ("src", "dst"))
    bytes = np.concatenate([np.zeros(0), *(step.bytes for step in steps)])
    return _All(number, src, dst, bytes, *network.over(src, dst))


def _refined(every: _All, network: Network, colours: list[Words]) -> tuple[Ints, Ints, Ints]:
    """Return classes of ranks, of links and of messages: colours that are refined until there are no more of them."""
    ranks: Words = np.zeros(network.size, dtype=np.uint64)
    for of_step in colours:
        ranks = mix(ranks + of_step)
    links = mix(network.bandwidths.view(np.uint64) ^ mix(network.latencies.view(np.uint64)))
    base = mix(every.bytes.view(np.uint64)) ^ mix(every.number.astype(np.uint64) + np.uint64(7))
    first = np.flatnonzero(np.r_[True, every.pair[1:] != every.pair[:-1]]) if len(every.pair) else every.pair
    within = (np.arange(len(every.pair)) - first[every.pair]).astype(np.uint64) if len(first) else every.pair
    before = 0
    while True:
        flows = mix(base ^ mix(ranks[every.src]) ^ mix(ranks[every.dst] + np.uint64(1 << 32)))
        if len(first):
            way = mix(links[every.link] + within.astype(np.uint64))
            flows = mix(flows + np.add.reduceat(way, first))
        found = len(np.unique(ranks)) + len(np.unique(links))
        if found == before:
            break
        before = found
        ends = ((every.src, flows), (every.dst, ~flows))
        for at, what in ends:
            ranks = mix(ranks + _gathered(at, what, network.size))
        links = mix(links + _gathered(every.link, flows[every.pair], len(links)))
    return _numbered(ranks), _numbered(links), _numbered(flows)


def _gathered(at: Ints, what: Words, size: int) -> Words:
    """Return a colour for the words that each of ``size`` places gathers, in no order."""
    sums = [np.bincount(at, half, minlength=size).astype(np.uint64) for half in _halves(what)]
    return mix(sums[0] ^ mix(sums[1]))


def _numbered(colours: Words) -> Ints:
    return np.asarray(np.unique(colours, return_inverse=True)[1].reshape(-1))


def _quotient(steps: list[MessageClasses], every: _All, ranks: Ints, links: Ints, flows: Ints) -> ClassProgram:
    """Return the program of one rank of each class, and its meetings with the others."""
    sizes, member = _of_classes(ranks)
    link_sizes, link_member = _of_classes(links)
    _, index, inverse, counts = np.unique(
        every.number * (flows.max(initial=0) + 1) + flows, return_index=True, return_inverse=True, return_counts=True
    )
    src, dst = ranks[every.src[index]], ranks[every.dst[index]]
    out, into = counts / sizes[src], counts / sizes[dst]
    keys, loads = np.unique(inverse.reshape(-1)[every.pair] * len(link_sizes) + links[every.link], return_counts=True)
    flow, link = np.divmod(keys, len(link_sizes))
    times = loads / link_sizes[link]
    starts = np.searchsorted(every.number[index], np.arange(len(steps) + 1))
    loaded = np.searchsorted(flow, starts)
    stages = []
    for step, a, b, c, d in zip(steps, starts, starts[1:], loaded, loaded[1:], strict=False):
        of, here = step.step, slice(a, b)
        columns = every.bytes[index[here]], src[here], dst[here], out[here], into[here]
        stages.append(
            Stage(of.phase, of.number, *columns, flow[c:d] - a, link[c:d], times[c:d], step.segments.of(member))
        )
    return ClassProgram(sizes, member, link_sizes, link_member, tuple(stages))


def _of_classes(classes: Ints) -> tuple[Ints, Ints]:
    _, member, sizes = np.unique(classes, return_index=True, return_counts=True)
    return sizes, member


def bytes_by_rank(stages: Iterable[Stage], sizes: Ints) -> tuple[Floats, Floats]:
    """Return the bytes that each rank of a class sends and receives, headers included; [classes] each."""
    sent, received = np.zeros((2, len(sizes)))
    for stage in stages:
        sent += np.bincount(stage.src, stage.out * stage.bytes, minlength=len(sizes))
        received += np.bincount(stage.dst, stage.into * stage.bytes, minlength=len(sizes))
    return sent, received
