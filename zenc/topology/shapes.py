"""Clusters of common shapes. Bandwidths are bytes a second for each direction, latencies seconds.

Each builder is a function that returns a Topology, and raises TopologyError for counts that make none. ``BUILDERS`` has
them by name, to be filled into a Draft that is changed further.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from zenc.errors import Diagnostic, TopologyError
from zenc.topology import link_specs
from zenc.topology.builder import TopologyBuilder
from zenc.topology.model import Topology

P = ParamSpec("P")

BUILDERS: dict[str, Callable[..., None]] = {}
"""Name -> the function that fills a draft."""


def summary(fill: Callable[..., None]) -> str:
    """Return the first sentence of a builder's docstring."""
    return (fill.__doc__ or "").split("\n")[0].replace("``", "")


def described(fill: Callable[..., None], *arguments: object, **options: object) -> str:
    """Return ``summary`` with numbers: ``4 machines of 8 devices``, where a builder was given them."""
    bound = inspect.signature(fill).bind(None, *arguments, **options)
    bound.apply_defaults()
    many = {name for name, p in bound.signature.parameters.items() if p.kind is p.VAR_POSITIONAL}
    text = (fill.__doc__ or "").split("\n")[0]
    for name, value in bound.arguments.items():
        words = " x ".join(map(str, value)) if name in many else str(value)
        if value == 1:  # one network card, and not cards
            text = re.sub(rf"``{name}``((?: \w+)*? \w+?)s\b", rf"{words}\1", text)
        text = text.replace(f"``{name}``", words)
    return text


def _builder(fill: Callable[Concatenate[TopologyBuilder, P], None]) -> Callable[P, Topology]:
    BUILDERS[fill.__name__] = fill

    def build(*arguments: P.args, **options: P.kwargs) -> Topology:
        draft = TopologyBuilder(fill.__name__, described(fill, *arguments, **options))
        fill(draft, *arguments, **options)
        return draft.finish()

    build.__name__, build.__doc__ = fill.__name__, fill.__doc__
    return build


def _at_least_one(draft: TopologyBuilder, **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            message = f"{name} is {count}, and must be at least 1"
            raise TopologyError(Diagnostic("wrong-range", message, draft.span))


@_builder
def ring(
    draft: TopologyBuilder, n: int, *, bandwidth: float = link_specs.TORUS, latency: float = link_specs.NVLINK_LATENCY
) -> None:
    """``n`` devices, each linked to the next and the last to the first.

    Devices forward nothing by themselves: a schedule has to send around the ring. Level: gpu.
    """
    _at_least_one(draft, n=n)
    draft.set_levels(("gpu", n))
    for one in range(n if n > 2 else n - 1):
        draft.connect(one, (one + 1) % n, bandwidth, latency)


@_builder
def torus(
    draft: TopologyBuilder, *sides: int, bandwidth: float = link_specs.TORUS, latency: float = link_specs.NVLINK_LATENCY
) -> None:
    """A grid of ``sides`` devices, closed in each dimension.

    Devices forward nothing by themselves. Levels: x, y and z, or d0 to d9 for more than three.
    """
    if not 1 <= len(sides) <= 10:
        message = f"a torus has 1 to 10 sides, not {len(sides)}"
        raise TopologyError(Diagnostic("wrong-arguments", message, draft.span))
    names = "xyz" if len(sides) <= 3 else [f"d{place}" for place in range(len(sides))]
    _at_least_one(draft, **dict(zip(names, sides, strict=False)))
    draft.set_levels(*zip(names, sides, strict=False))
    rank = {place: number for number, place in enumerate(itertools.product(*map(range, sides)))}
    for place, dimension in itertools.product(rank, range(len(sides))):
        side = sides[dimension]
        if place[dimension] < (side if side > 2 else side - 1):
            other = (*place[:dimension], (place[dimension] + 1) % side, *place[dimension + 1 :])
            draft.connect(rank[place], rank[other], bandwidth, latency)


@_builder
def fat_tree(
    draft: TopologyBuilder,
    k: int,
    *,
    bandwidth: float = link_specs.NETWORK,
    latency: float = link_specs.NETWORK_LATENCY,
) -> None:
    """The fat tree of switches with ``k`` ports, with full bandwidth between all devices.

    Al-Fares et al., "A scalable, commodity data center network architecture" (SIGCOMM 2008). ``k`` is even; there are
    k pods, and k^3 / 4 devices. Levels: pod, edge, gpu. Switches: edge(pod, e), aggregation(pod, a), core(a, c).
    """
    if k < 2 or k % 2:
        raise TopologyError(Diagnostic("wrong-range", f"k is {k}, and must be even and at least 2", draft.span))
    half = k // 2
    draft.set_levels(("pod", k), ("edge", half), ("gpu", half))
    for a, c in itertools.product(range(half), repeat=2):
        draft.add_switch(f"core({a}, {c})")
    for pod, place in itertools.product(range(k), range(half)):
        draft.add_switch(f"edge({pod}, {place})")
        draft.add_switch(f"aggregation({pod}, {place})")
    for pod, one, other in itertools.product(range(k), range(half), range(half)):
        draft.connect((pod * half + one) * half + other, f"edge({pod}, {one})", bandwidth, latency, "network")
        draft.connect(f"edge({pod}, {one})", f"aggregation({pod}, {other})", bandwidth, latency, "network")
        draft.connect(f"aggregation({pod}, {one})", f"core({one}, {other})", bandwidth, latency, "network")


@_builder
def nodes(
    draft: TopologyBuilder,
    k: int,
    *,
    gpus: int = 8,
    nics: int = 1,
    bandwidth: float = link_specs.NVSWITCH,
    latency: float = link_specs.NVLINK_LATENCY,
    network_bandwidth: float = link_specs.NETWORK,
    network_latency: float = link_specs.NETWORK_LATENCY,
) -> None:
    """``k`` machines of ``gpus`` devices on a switch, with ``nics`` network cards each, on one network switch.

    All devices of a machine share its cards; a card takes from the inner switch what the network takes from it. Levels:
    node, gpu. Switches: nvswitch(n), nic(n, c), network. One machine has no network.
    """
    _at_least_one(draft, k=k, gpus=gpus, nics=nics)
    draft.set_levels(("node", k), ("gpu", gpus))
    draft.add_hosts(0)
    if k > 1:
        draft.add_switch("network")
    for n in range(k):
        inner = draft.add_switch(f"nvswitch({n})")
        for g in range(gpus):
            draft.connect(n * gpus + g, inner, bandwidth, latency, "nvlink")
        for c in range(nics if k > 1 else 0):
            card = draft.add_switch(f"nic({n}, {c})", "nic")
            draft.connect(inner, card, network_bandwidth, latency, "pcie")
            draft.connect(card, "network", network_bandwidth, network_latency, "network")


@_builder
def dragonfly(
    draft: TopologyBuilder,
    p: int,
    a: int,
    h: int,
    *,
    groups: int = 0,
    bandwidth: float = link_specs.NETWORK,
    latency: float = link_specs.NETWORK_LATENCY,
    global_bandwidth: float = link_specs.NETWORK,
    global_latency: float = link_specs.NETWORK_LATENCY,
) -> None:
    """Groups of ``a`` routers, all linked to each other, with ``p`` devices and ``h`` links to other groups each.

    Kim et al., "Technology-driven, highly-scalable dragonfly topology" (ISCA 2008). ``groups`` is at most, and by
    default, a h + 1; any two groups have one link. Levels: group, router, gpu. Switches: router(g, r).
    """
    _at_least_one(draft, p=p, a=a, h=h)
    count = groups or a * h + 1
    if not 1 <= count <= a * h + 1:
        message = f"groups is {groups}; {a} routers with {h} links each reach at most {a * h + 1} groups"
        raise TopologyError(Diagnostic("wrong-range", message, draft.span))
    draft.set_levels(("group", count), ("router", a), ("gpu", p))
    for g, r in itertools.product(range(count), range(a)):
        router = draft.add_switch(f"router({g}, {r})")
        for device in range(p):
            draft.connect((g * a + r) * p + device, router, bandwidth, latency, "network")
        for other in range(r):
            draft.connect(router, f"router({g}, {other})", bandwidth, latency, "network")
    for g, other in itertools.combinations(range(count), 2):
        ends = f"router({g}, {(other - 1) // h})", f"router({other}, {g // h})"
        draft.connect(*ends, global_bandwidth, global_latency, "network")


@_builder
def dgx(
    draft: TopologyBuilder,
    k: int,
    *,
    gpus: int = 8,
    bandwidth: float = link_specs.NVSWITCH,
    latency: float = link_specs.NVLINK_LATENCY,
    pcie_bandwidth: float = 2 * link_specs.PCIE,
    pcie_latency: float = link_specs.PCIE_LATENCY,
    network_bandwidth: float = link_specs.NETWORK,
    network_latency: float = link_specs.NETWORK_LATENCY,
    memory: int = 80 * link_specs.GB,
    host_memory: int = 2048 * link_specs.GB,
) -> None:
    """``k`` machines like NVIDIA's DGX H100: NVSwitch inside, and a network card of its own for each device.

    Card g of every machine is on the switch of rail g; rails meet at a spine that holds no one up. Levels: node, gpu.
    Switches: nvswitch(n), nic(n, g), rail(g), spine. One machine has no network.
    """
    _at_least_one(draft, k=k, gpus=gpus)
    draft.set_levels(("node", k), ("gpu", gpus), memory=memory)
    draft.add_hosts(0, host_memory)
    if k > 1:
        draft.add_switch("spine")
    for g in range(gpus if k > 1 else 0):
        draft.connect(draft.add_switch(f"rail({g})"), "spine", k * network_bandwidth, network_latency, "network")
    for n in range(k):
        inner = draft.add_switch(f"nvswitch({n})")
        for g in range(gpus):
            draft.connect(n * gpus + g, inner, bandwidth, latency, "nvlink")
            if k > 1:
                card = draft.add_switch(f"nic({n}, {g})", "nic")
                draft.connect(n * gpus + g, card, pcie_bandwidth, pcie_latency, "pcie")
                draft.connect(card, f"rail({g})", network_bandwidth, network_latency, "network")


def signature(name: str) -> str:
    """Return ``nodes(k, gpus, nics, ...)``: the parameters of a builder, those first that must be given."""
    parameters = list(inspect.signature(BUILDERS[name]).parameters.values())[1:]
    return f"{name}({', '.join('...' if p.kind is p.VAR_POSITIONAL else p.name for p in parameters)})"
