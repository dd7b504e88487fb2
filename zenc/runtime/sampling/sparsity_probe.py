"""The sparsity probe: a sampled all-reduce of index presence, then predicted seconds of each candidate.

gradient --marks--> held [s] of this rank --all-reduce--> holders [s] of all --Tally--> Profile --predict--> Model*
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from zenc.gradients.sample import HolderCounts
from zenc.plan.expressions import Ints
from zenc.plan.ir import Plan
from zenc.runtime.communicator import Communicator
from zenc.runtime.layout import Layout
from zenc.runtime.sampling.presence import PresenceSampler, count_dtype
from zenc.select.online import Model
from zenc.simulator.calibration import DEFAULTS
from zenc.simulator.predict import predict

SAMPLE = 65_536
ALIKE = 0.05
"""Looks are alike whose densities differ by no more, relatively, and by no more than chance makes likely."""
_SLOWER = 16
"""Factor by which links are slowed to tell the transfer from what takes as long on any."""


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """``holders`` [s]: how many ranks hold each unit of the sample."""

    holders: Ints

    @property
    def counts(self) -> tuple[int, int]:
        """Units that ranks hold, counted for each of them, and those that any of them holds."""
        return int(self.holders.sum()), int((self.holders > 0).sum())

    def is_like(self, other: Probe) -> bool:
        """Whether both may be of gradients that are held alike."""
        pairs = zip(self.counts, other.counts, strict=True)
        return all(abs(a - b) <= ALIKE * max(a, b) or (a - b) ** 2 <= 9 * max(a, b) for a, b in pairs)


class SparsityProbe:
    """Looks at the gradients ``tensor`` for ``plans``, with all ranks of ``communicator``."""

    def __init__(self, tensor: str, layout: Layout, plans: Sequence[Plan], communicator: Communicator) -> None:
        self.tensor, self.layout, self.plans, self.communicator = tensor, layout, tuple(plans), communicator
        self._marker = PresenceSampler(SAMPLE)

    def look(self, gradient: torch.Tensor) -> Probe | None:
        """The holders of ``gradient``, of any shape, counted by all ranks in turn; None where a rank could not tell."""
        marks = self._marker.marked(gradient, self.layout).to(count_dtype(self.communicator.size))
        holders, _ = self.communicator.allreduce_sum(marks, 0)
        return None if holders[-1] else Probe(holders[:-1].to(torch.int64).numpy())

    def models(self, look: Probe) -> list[Model]:
        """Predicted seconds of each plan, by the rank that expects most; the same on all ranks."""
        size, of = self.communicator.size, self.layout
        tally = HolderCounts(self.tensor, of.units, of.width, of.dtype_name, size, SAMPLE)
        tally.add(look.holders, look.holders[:1] * 0)
        profile = tally.profile()
        slow = replace(DEFAULTS, bandwidth=DEFAULTS.bandwidth / _SLOWER)
        predictions = [predict(plan, size, profile, None, at).seconds for at in (DEFAULTS, slow) for plan in self.plans]
        agreed = self.communicator.allreduce_max(predictions)
        return [_model(*pair) for pair in zip(agreed[: len(self.plans)], agreed[len(self.plans) :], strict=True)]


def _model(seconds: float, on_slow_links: float) -> Model:
    transfer = max(0.0, (on_slow_links - seconds) / (_SLOWER - 1))
    return Model(max(0.0, seconds - transfer), transfer)
