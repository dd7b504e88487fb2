"""Samples of gradients: the units that ranks hold, for profiles and for the choice of a scheme.

gradient --marks--> held [s] of this rank --all-reduce--> holders [s] of all --Tally--> Profile --predict--> Model*

Presence is a byte for each unit of the sample, summed over the ranks. The sparsity probe predicts from the sums the
seconds of each candidate.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from zenc.gradients.profile_fit import HolderCounts, sample_ids
from zenc.plan.expressions import Ints
from zenc.plan.ir import Plan
from zenc.runtime.call.layout import Layout, contribution_of
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import allreduce_max, allreduce_sum
from zenc.select.online import Model
from zenc.simulator.calibration import DEFAULTS, ESTIMATES
from zenc.simulator.predict import predict

log = logging.getLogger("zenc")

SAMPLE = 65_536
"""Units of a gradient that are sampled."""
ALIKE = 0.05
"""The greatest relative difference in density of looks that count as alike, if chance does not allow more."""
_SLOWER = 16
"""The factor by which links are slowed to separate the transfer from work that takes as long on any link."""
_ROWS_AT_ONCE = 4096
"""A number of rows whose copies mostly stay in the caches."""


class PresenceSampler:
    """A sampler of ``sample`` units of gradients, or of all where there are fewer; the same units on all ranks."""

    def __init__(self, sample: int) -> None:
        self.sample = sample
        self._ids: dict[tuple[int, torch.device], torch.Tensor] = {}

    def marked(self, gradient: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Return marks of the sampled units in ``gradient``, then 0, or 1 for a failure: [s + 1] uint8 on the CPU."""
        ids = self._sampled(layout.units, gradient.device)
        marked = torch.zeros(len(ids) + 1, dtype=torch.uint8, device="cpu")
        try:
            marked[:-1] = _held(gradient, layout, ids)
        except Exception:
            log.exception("this rank can't tell which units it holds; the sample is dropped")
            marked[-1] = 1
        return marked

    def _sampled(self, units: int, device: torch.device) -> torch.Tensor:
        key = units, device
        if key not in self._ids:
            self._ids[key] = torch.from_numpy(sample_ids(units, self.sample)).to(device)
        return self._ids[key]


def count_dtype(ranks: int) -> torch.dtype:
    """Return the smallest type that counts ``ranks`` ranks."""
    return torch.uint8 if ranks <= 255 else torch.int32


def _held(gradient: torch.Tensor, layout: Layout, ids: torch.Tensor) -> torch.Tensor:
    """Return for each unit of ``ids`` [s], ascending, 1 if ``gradient`` has it; [s] uint8, on its device."""
    contribution = contribution_of(gradient, layout)
    if contribution.unit_ids is None:
        rows = contribution.values.view(layout.units, layout.width)
        return torch.cat([_touched(rows, some) for some in torch.split(ids, _ROWS_AT_ONCE)])
    held = torch.zeros(len(ids), dtype=torch.uint8, device=gradient.device)
    place = torch.searchsorted(ids, contribution.unit_ids).clamp_(max=len(ids) - 1)
    held[place[ids[place] == contribution.unit_ids]] = 1
    return held


def _touched(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return a byte for each of the rows ``ids`` [s]: 1 if not all zeros. Twice as fast as rows[ids] and any()."""
    return (rows.index_select(0, ids).abs().amax(dim=1) != 0).to(torch.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A look at a gradient: ``holders`` [s] is the number of ranks that hold each unit of the sample."""

    holders: Ints

    @property
    def counts(self) -> tuple[int, int]:
        """The units that ranks hold, counted for each of them, and those that any of them holds."""
        return int(self.holders.sum()), int((self.holders > 0).sum())

    def is_like(self, other: Probe) -> bool:
        """Return whether both may be of gradients that are held alike."""
        pairs = zip(self.counts, other.counts, strict=True)
        return all(abs(a - b) <= ALIKE * max(a, b) or (a - b) ** 2 <= 9 * max(a, b) for a, b in pairs)


class SparsityProbe:
    """A probe of the gradients ``tensor`` for ``plans``, with all ranks of ``communicator``.

    ``on_gpu``: kernels are taken for those of one H100, and else of a CPU core.
    """

    def __init__(
        self, tensor: str, layout: Layout, plans: Sequence[Plan], communicator: Communicator, on_gpu: bool = False
    ) -> None:
        self.tensor, self.layout, self.plans, self.communicator = tensor, layout, tuple(plans), communicator
        self.assumed = ESTIMATES if on_gpu else DEFAULTS
        self._marker = PresenceSampler(SAMPLE)

    def look(self, gradient: torch.Tensor) -> Probe | None:
        """Return the holders of ``gradient``, of any shape, counted by all ranks in turn; None where a rank failed."""
        marks = self._marker.marked(gradient, self.layout).to(count_dtype(self.communicator.size))
        holders, _ = allreduce_sum(self.communicator, marks, 0, self.tensor)
        return None if holders[-1] else Probe(holders[:-1].to(torch.int64).numpy())

    def models(self, look: Probe) -> list[Model]:
        """Return predicted seconds of each plan, by the rank that expects most; the same on all ranks."""
        size, of = self.communicator.size, self.layout
        tally = HolderCounts(self.tensor, of.units, of.width, of.dtype_name, size, SAMPLE)
        tally.add(look.holders, look.holders[:1] * 0)
        profile = tally.profile()
        slow = replace(self.assumed, bandwidth=self.assumed.bandwidth / _SLOWER)
        both = self.assumed, slow
        predictions = [predict(plan, size, profile, None, at).seconds for at in both for plan in self.plans]
        agreed = allreduce_max(self.communicator, predictions, f"predict who sums {self.tensor} best")
        pairs = zip(agreed[: len(self.plans)], agreed[len(self.plans) :], strict=True)
        transfers = [(seconds, max(0.0, (on_slow_links - seconds) / (_SLOWER - 1))) for seconds, on_slow_links in pairs]
        return [Model(max(0.0, seconds - transfer), transfer) for seconds, transfer in transfers]
