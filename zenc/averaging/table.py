"""The steps of an averaging as a table: the groups that average, the bytes they send, and the busiest link.

AveragingTable = averaging size StepRow+ whole: StepRow        # whole: all ranks at once by the same scheme
StepRow        = division groups: Group+ bytes rounds BusiestLink?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.link_load import LinkLoads
from zenc.averaging.mixing import PeriodProof
from zenc.averaging.model import Averaging, Group, division_text, timing_text
from zenc.common.wording import aligned, count, runs_text
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import expand
from zenc.scheme.compression_words import words_of
from zenc.simulator.predict import predict
from zenc.verify.proof import prove
from zenc.verify.provenance import Deliveries

if TYPE_CHECKING:
    from zenc.topology.model import Topology

VALUES = 1 << 20
"""The number of parameter values that bytes are counted for: many, so that headers count for nothing."""
MOST_GROUPS = 4
"""Most groups of a step that the text lists."""


@dataclass(frozen=True, slots=True)
class BusiestLink:
    """The link of a topology that is busy for longest in a step: bytes and seconds for each parameter of float32."""

    name: str
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step; ``bytes`` are the busiest rank's for each float32 parameter, ``rounds`` those of messages."""

    division: str
    groups: tuple[Group, ...]
    bytes: float
    rounds: int
    link: BusiestLink | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        busiest = self.link and {"name": self.link.name, "bytes_a_value": self.link.bytes, "seconds": self.link.seconds}
        own = {"division": self.division, "groups": [list(group) for group in self.groups]}
        return {**own, "bytes_a_value": self.bytes, "rounds": self.rounds, "busiest_link": busiest}

    def cells(self) -> list[str]:
        """Return division, groups, bytes and rounds, and the link where there is a topology."""
        shown = " ".join(f"[{runs_text(group)}]" for group in self.groups[:MOST_GROUPS])
        more = " ..." if len(self.groups) > MOST_GROUPS else ""
        own = [self.division, f"{len(self.groups)}: {shown}{more}", f"{self.bytes:.3g}", str(self.rounds)]
        return [*own, f"{self.link.name}, {self.link.bytes:.3g}"] if self.link else own


@dataclass(frozen=True, slots=True)
class AveragingTable:
    """The table of ``averaging`` among the ranks of ``proof``."""

    averaging: Averaging
    proof: PeriodProof
    rows: tuple[StepRow, ...]
    whole: StepRow

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON data."""
        own = {"averaging": self.averaging.name, "ranks": self.proof.size, "sums": self.averaging.sums.name}
        words = {key: words_of(value) for key, value in self.averaging.words.items()}
        more = {"bytes_a_value_and_step": self.bytes_a_step, "from_any_step": self.proof.from_any_step}
        steps = [row.to_json() for row in self.rows]
        return {**own, "words": words, **more, "steps": steps, "all_at_once": self.whole.to_json()}

    def text(self) -> str:
        """Return the table in lines, and the proved properties."""
        heads = ["step", "division", "groups", "bytes a value", "rounds", "busiest link, bytes a value"]
        numbered = [[str(step), *row.cells()] for step, row in enumerate(self.rows)]
        lines = [heads[: len(numbered[0])], *numbered, ["-", *self.whole.cells()]]
        return "\n".join([*self._heading(), "", *aligned(lines), "", *self._notes()])

    def _heading(self) -> list[str]:
        doc = [self.averaging.doc] if self.averaging.doc else []
        period = f"a period of {count(self.averaging.period, 'step')}, each group by {self.averaging.sums.name}"
        timing = [timing_text(self.averaging)] if self.averaging.words else []
        return [f"averaging {self.averaging.name}", *doc, period, *timing]

    def _notes(self) -> list[str]:
        steps = count(self.averaging.period, "step")
        when = f"any {steps}" if self.proof.from_any_step else f"the {steps} of a period, from the first one on"
        mean = f"After {when} in a row all {count(self.proof.size, 'rank')} have the mean of what they had, exactly."
        bytes = f"Bytes a value: what the busiest rank sends for a float32 parameter, of {VALUES:,}; 4 bytes are one."
        if self.averaging.outer:
            outer = words_of(self.averaging.outer)
            mean = f"After each {outer} steps from what all ranks had, by the mean of their changes."
        each = (
            f"Each value is averaged once in {self.averaging.when.steps:,} steps: {self.bytes_a_step:.3g} bytes a step."
        )
        rare = [each] if self.averaging.when.steps > 1 else []
        return [mean, bytes, *rare, "The last line, for comparison: all ranks at once by the same scheme."]

    @property
    def bytes_a_step(self) -> float:
        """The bytes that the busiest rank sends for a float32 parameter in a step of its own optimizer, on average."""
        return sum(row.bytes for row in self.rows) / len(self.rows) / self.averaging.when.steps


def averaging_table(
    averaging: Averaging, proof: PeriodProof, plans: Mapping[int, Plan], topology: Topology | None = None
) -> AveragingTable:
    """Return the table of ``averaging``; ``plans`` are by the number of ranks in a group, with that of all ranks."""
    everyone = (tuple(range(proof.size)),)
    divisions = [division_text(each) for each in averaging.steps]
    of_steps = zip([*divisions, "everyone"], [*proof.steps, everyone], strict=True)
    *rows, whole = [_row(division, groups, plans, topology) for division, groups in of_steps]
    return AveragingTable(averaging, proof, tuple(rows), whole)


def _row(division: str, groups: tuple[Group, ...], plans: Mapping[int, Plan], topology: Topology | None) -> StepRow:
    profile = uniform(1.0, VALUES, 1, "f32")
    found = [predict(plans[size], size, profile) for size in sorted({len(group) for group in groups})]
    sent = max(each.sent for each in found) / VALUES
    rounds = max(each.steps for each in found)
    return StepRow(division, groups, sent, rounds, _busiest(groups, plans, topology) if topology else None)


def _busiest(groups: Sequence[Group], plans: Mapping[int, Plan], topology: Topology) -> BusiestLink | None:
    """Return the link that is busy for longest in a step of ``groups``; None where nothing is sent."""
    total = np.zeros(len(topology.links))
    for group in groups:
        if len(group) > 1:
            total += _loads(np.array(group), plans[len(group)], topology)
    loads = LinkLoads(topology, total / VALUES, ())
    if (link := loads.bottleneck) is None:
        return None
    return BusiestLink(loads.name(link), float(loads.total[link]), float(loads.seconds[link]))


def _loads(members: npt.NDArray[np.int64], plan: Plan, topology: Topology) -> npt.NDArray[np.float64]:
    """Return the bytes [links] that a call among ``members`` sends over each link."""
    size, total = len(members), np.zeros(len(topology.links))
    expected = ExpectedBytes(plan, size, uniform(1.0, VALUES, 1, "f32"))

    def observe(phase: Phase, number: int, moved: Deliveries) -> None:
        pairs, inverse = np.unique(moved.src * size + moved.dst, return_inverse=True)
        weights = expected.delivered(phase, moved, inverse.reshape(-1), len(pairs))
        src, dst = np.divmod(pairs, size)
        pair, link = topology.routes.paths(members[src], members[dst]).over(np.arange(len(pairs)))
        total[:] += np.bincount(link, weights[pair], minlength=len(total))

    prove(plan, expand(plan, size), observe)
    return total
