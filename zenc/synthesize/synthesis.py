"""Topology -> a proved scheme: the bound, trees that come near it, their text, and what the simulator says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zenc.gradients.profile_generators import uniform
from zenc.language.files import load_text
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.scheme.units import bandwidth_text
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import predict
from zenc.synthesize.bound import Bound, bound_of
from zenc.synthesize.packing import Packing, pack
from zenc.synthesize.write import name_for, scheme_text
from zenc.topology.model import Topology
from zenc.verify.proof import verify
from zenc.wording import count, seconds_text, size_text

Progress = Callable[[str], None]
USUAL_BYTES = 64e9
_WIDTH, _VALUE = 64, 4


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """A synthesized scheme: its ``plan`` is proved; ``seconds``: of a dense all-reduce of ``bytes``, by links alone."""

    topology: Topology
    bound: Bound
    packing: Packing
    chunks: int
    plan: Plan
    bytes: float
    seconds: float

    @property
    def least(self) -> float:
        """The least seconds that any scheme takes."""
        return self.bytes / self.bound.all_reduce

    @property
    def share(self) -> float:
        """The share of the bound that is reached."""
        return self.least / self.seconds

    def text(self, command: str = "zenc.synthesize(...)") -> str:
        """Return the file of the scheme; ``command`` made it."""
        return scheme_text(self.topology, self.packing, self.chunks, self._comment(command))

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values for people."""
        bound, packing = self.bound, self.packing
        parts = packing.each * self.chunks
        return [
            ("bound", f"{bandwidth_text(bound.all_reduce)}: {size_text(self.bytes)} dense in {seconds_text(self.least)}"),
            ("cut", cut_text(self.topology, bound)),
            ("scheme", f"{count(len(packing.trees), 'tree')} of depth {packing.depth}, {self.chunks} chunks; "
                       f"{parts} parts a rank"),
            ("predicted", f"{seconds_text(self.seconds)}, {self.share:.1%} of the bound, by links alone"),
            ("links", f"{packing.share:.1%} of the bound, if chunks cost nothing"),
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; bytes a second, seconds."""
        return {
            "topology": self.topology.name,
            "ranks": self.topology.size,
            **bound_json(self.topology, self.bound),
            "bytes": self.bytes,
            "least_seconds": self.least,
            "seconds": self.seconds,
            "share": self.share,
            "share_of_links": self.packing.share,
            "trees": len(self.packing.trees),
            "depth": self.packing.depth,
            "chunks": self.chunks,
            "parts": self.packing.each * self.chunks * self.topology.size,
        }

    def _comment(self, command: str) -> list[str]:
        return [
            f"Made by {' '.join(command.split())}",
            f"for the {self.topology.size} ranks of {self.topology.name}.",
            f"Bound of any scheme: {bandwidth_text(self.bound.all_reduce)} of the tensor, by",
            f"  {cut_text(self.topology, self.bound)}.",
            f"Predicted, by links alone: {size_text(self.bytes)} dense in {seconds_text(self.seconds)}, "
            f"{self.share:.1%} of the bound.",
            "Fewer chunks have less latency; more keep more links busy at once.",
        ]


def bound_json(topology: Topology, bound: Bound) -> dict[str, Any]:
    """Return the bound as JSON data: bytes of the tensor a second, and the cut with what leaves it."""
    return {
        "bound": bound.all_reduce,
        "cut": [topology.label(node) for node in bound.cut],
        "cut_ranks": bound.inside,
        "leaving": bound.leaving,
    }


def cut_text(topology: Topology, bound: Bound) -> str:
    """Return the cut in a line: what leaves or comes in, and whose ranks it is."""
    outside = [node for node in topology.ranks if node not in set(bound.cut)]
    inside = [node for node in bound.cut if isinstance(node, int)]
    few, way = (outside, "to") if len(outside) < len(inside) else (inside, "from")
    named = ", ".join(topology.label(node) for node in few[:4]) + (f" and {len(few) - 4} more" if len(few) > 4 else "")
    return (
        f"{bandwidth_text(bound.leaving)} {way} {named}, for what {count(bound.inside, 'rank')} "
        f"{'has' if bound.inside == 1 else 'have'} to send there"
    )


def synthesize(
    topology: Topology,
    bytes: float = USUAL_BYTES,
    chunks: int | None = None,
    progress: Progress = lambda _: None,
) -> Synthesis:
    """Return a proved scheme for ``topology``, and its share of the bound for a dense gradient of ``bytes``.

    ``chunks``: the pieces in which trees carry, by default as many as their depth needs.

    Raises TopologyError as ``bound_of`` does.
    """
    bound = bound_of(topology, progress)
    packing = pack(topology, bound, progress=progress)
    chunks = chunks or packing.chunks
    name = name_for(topology)
    scheme, _ = resolve(load_text(scheme_text(topology, packing, chunks), f"{name}.zen"), name)
    plan = lower(scheme, topology.size)
    progress("the proof")
    verify(plan, topology.size)
    progress("the prediction")
    units = max(1, round(bytes / (_WIDTH * _VALUE)))
    seconds = predict(plan, topology.size, uniform(1.0, units, _WIDTH), topology, bandwidth_only("links")).seconds
    return Synthesis(topology, bound, packing, chunks, plan, bytes, seconds)
