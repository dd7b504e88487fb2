"""Topology -> a proved scheme: the bound, trees that come near it, their text, and what the simulator says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm
from typing import Any

from zenc.common.wording import count, seconds_text, size_text
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.scheme.units import bandwidth_text
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import predict
from zenc.synthesize.even import pack
from zenc.synthesize.loads import APART, BOTH, DOWN, GOOD, UP, Packing, in_shares
from zenc.synthesize.sparse import plans_of, quickest
from zenc.synthesize.write import Form, scheme_text
from zenc.topology.bound import Bound, all_reduce_rate, bound_at_once, bound_of, comes_back, is_two_way, taken_links
from zenc.topology.model import Topology
from zenc.verify.proof import verify

Progress = Callable[[str], None]
USUAL_BYTES = 64e9
_WIDTH, _VALUE = 64, 4
_FASTER, _APART = 1.02, 1.01
"""The least gains for which sums and results run at once, and for which they have trees of their own."""
_SETTLED = 4
"""Chunks after which links are evenly busy, beside one for each level of the trees: later ones take as long each."""


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """A synthesized scheme: its ``plan`` is proved; ``seconds``: of a dense all-reduce of ``bytes``, by links alone.

    Or of a sparse one like ``gradient``, with kernels. ``idle``: how many links no message takes, and the bound of an
    all-reduce with these.
    """

    topology: Topology
    bound: Bound
    upwards: Bound
    packing: Packing
    up: Packing | None
    form: Form
    plan: Plan
    bytes: float
    seconds: float
    idle: tuple[int, float]
    gradient: Profile | None = None

    @property
    def all_reduce(self) -> float:
        """The bound: bytes of the tensor a second, in a reduce-scatter and an all-gather."""
        return all_reduce_rate(self.bound, self.upwards)

    @property
    def least(self) -> float:
        """The least seconds that such a scheme takes."""
        return self.bytes / self.all_reduce

    @property
    def share(self) -> float:
        """The share of the bound that is reached."""
        return self.least / self.seconds

    @property
    def _routes(self) -> str:
        most = min(packing.ceiling for packing in (self.packing, self.up) if packing)
        return "" if most > 0.99 else f"; no trees of these kinds do better than {most:.1%}"

    @property
    def _idle(self) -> str:
        links, rate = count(self.idle[0], "link"), bandwidth_text(self.idle[1])
        return f"{links} (each way) that no message takes, as others are wider: with them {rate}"

    def text(self, command: str = "zenc synthesize") -> str:
        """Return the file of the scheme; ``command`` made it."""
        return scheme_text(self.topology, self.packing, self.up, self.form, self._comment(command))

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values for people."""
        packing, form = self.packing, self.form
        parts = max(1, packing.each * form.chunks)
        least, size = seconds_text(self.least), size_text(self.bytes)
        trees = f"{count(len(packing.trees), 'tree')} of depth {packing.depth}, {count(form.chunks, 'chunk')}"
        trees = f"{trees}; {count(parts, 'part')} a rank" if self.gradient is None else str(form)
        return [
            ("bound", f"{bandwidth_text(self.all_reduce)}: {size} dense in {least}"),
            ("cut", self.bound.text(self.topology)),
            *([("upwards", self.upwards.text(self.topology, upwards=True))] if self.up else []),
            *([("idle", self._idle)] if self.idle[0] else []),
            ("scheme", trees),
            ("predicted", self._predicted),
            ("links", f"{packing.share:.1%} of the bound, if chunks cost nothing{self._routes}"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; bytes a second, seconds."""
        return {
            "topology": self.topology.name,
            "ranks": self.topology.size,
            "bound": self.all_reduce,
            "cut": [self.topology.label(node) for node in self.bound.cut],
            "leaving": self.bound.leaving,
            "idle_links": self.idle[0],
            "bound_with_idle_links": self.idle[1],
            "bytes": self.bytes,
            "least_seconds": self.least,
            "seconds": self.seconds,
            "share": self.share,
            "share_of_links": self.packing.share,
            "most_by_routes": self.packing.ceiling,
            "trees": len(self.packing.trees),
            "depth": self.packing.depth,
            "chunks": self.form.chunks,
            "parts": max(1, self.packing.each * self.form.chunks) * self.topology.size,
            "by_holders": self.form.by_holders,
            "density": 1.0 if self.gradient is None else self.gradient.density,
        }

    @property
    def _predicted(self) -> str:
        if self.gradient is not None:
            return f"{seconds_text(self.seconds)} at a density of {self.gradient.density:.2%}, with kernels"
        return f"{seconds_text(self.seconds)}, {self.share:.1%} of the bound, by links alone"

    def _comment(self, command: str) -> list[str]:
        return [
            f"Made by {' '.join(command.split())}",
            f"for the {self.topology.size} ranks of {self.topology.name}.",
            f"Bound of any scheme: {bandwidth_text(self.all_reduce)} of the tensor, by",
            f"  {self.bound.text(self.topology)}.",
            f"Predicted, by links alone: {size_text(self.bytes)} dense in {seconds_text(self.seconds)}, "
            f"{self.share:.1%} of the bound."
            if self.gradient is None
            else f"Predicted, for {size_text(self.bytes)} if dense: {self._predicted}.",
            *(["Fewer chunks have less latency; more keep more links busy at once."] if self.form.chunks else []),
        ]


def synthesize(
    topology: Topology,
    bytes: float = USUAL_BYTES,
    chunks: int | None = None,
    progress: Progress = lambda _: None,
    gradient: Profile | None = None,
) -> Synthesis:
    """Return a proved scheme for ``topology``, and its share of the bound for a dense gradient of ``bytes``.

    ``chunks``: the pieces in which trees carry, by default as many as their depth needs. Of sparse gradients like
    ``gradient``, whose dense ``bytes`` do not count then, the scheme is the quickest form: see ``quickest``.

    Raises TopologyError as ``bound_of`` does.
    """
    bound, upwards, packing, up = packed(topology, progress)
    idle = _idle(topology, bound, upwards)
    if gradient is not None:
        progress("predictions")
        form, plan, seconds = quickest(topology, packing, up, gradient, chunks)
        verify(plan, topology.size)
        bytes = float(gradient.units * gradient.unit_bytes)
        return Synthesis(topology, bound, upwards, packing, up, form, plan, bytes, seconds, idle, gradient)
    form = Form(chunks or max(of.chunks for of in (packing, up or packing)))
    few = max(of.depth for of in (packing, up or packing)) + _SETTLED
    simulated = (few, 2 * few) if form.chunks > 2 * few else (form.chunks,)
    plan, *plans = plans_of(topology, packing, up, form, (form.chunks, *simulated))
    progress("the proof")
    verify(plan, topology.size)
    progress("the prediction")
    each = bytes / max(1, form.chunks)
    times = [_seconds(topology, of, each * chunks, bound) for of, chunks in zip(plans, simulated, strict=True)]
    seconds = times[-1] + (times[-1] - times[0]) * (form.chunks / few - 2)
    return Synthesis(topology, bound, upwards, packing, up, form, plan, bytes, seconds, idle)


def _seconds(topology: Topology, plan: Plan, bytes: float, bound: Bound) -> float:
    dense, links = uniform(1.0, max(1, round(bytes / (_WIDTH * _VALUE))), _WIDTH), bandwidth_only("links")
    return predict(plan, topology.size, dense, topology, links, flows=bound.at_once, coarse=True).seconds


def _idle(topology: Topology, *bounds: Bound) -> tuple[int, float]:
    """Return how many links no message takes, and the bound of an all-reduce with these."""
    idle = len(topology.links) - len(taken_links(topology))
    both = [bound_of(topology, upwards, links=topology.links) for upwards in (False, True)] if idle else bounds
    return idle, all_reduce_rate(*both)


def packed(topology: Topology, progress: Progress = lambda _: None) -> tuple[Bound, Bound, Packing, Packing | None]:
    """Return the bounds of both ways, the trees downwards, and those upwards where sums have trees of their own.

    They do where links are not two-way; and where they come back by other cards, if one set of trees is not ``GOOD``.
    """
    bound = bound_of(topology, progress=progress)
    most, both = bound, None
    if is_two_way(topology):
        both = pack(topology, bound, DOWN if comes_back(topology) else APART, progress)
        most, both = _at_once(topology, bound, both, progress)
        if comes_back(topology) or both.piped >= GOOD:
            return most, most, both, None
    share = 1.0 if both is None else 0.5
    down = pack(topology, bound, DOWN, progress, share)
    if both is None or down.piped > both.piped:
        upwards = bound_of(topology, True, progress)
        up = pack(topology, upwards, UP, progress, share)
        if both is None or 2 / (1 / down.piped + 1 / up.piped) > _APART * both.piped:
            each = lcm(down.each, up.each)
            return bound, upwards, in_shares(down, each), in_shares(up, each)
    return most, most, both, None


def _at_once(topology: Topology, bound: Bound, packing: Packing, progress: Progress) -> tuple[Bound, Packing]:
    """Return a bound and trees for sums and results at once, if these are faster: on CPUs, where they run so."""
    most = bound if topology.has_gpus else bound_at_once(topology)
    if most.rate > bound.rate * _FASTER:
        found = pack(topology, most, BOTH, progress)
        if found.piped * float(most.rate) > packing.piped * float(bound.rate) * _FASTER:
            return most, found
    return bound, packing
