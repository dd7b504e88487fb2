"""Presence: which units of a sample a rank holds, a byte each, to be summed over the ranks."""

from __future__ import annotations

import logging

import torch

from zenc.gradients.sample import sample_ids
from zenc.runtime.layout import Layout, contribution_of

log = logging.getLogger("zenc")

_ROWS_AT_ONCE = 4096
"""Copies of so many rows mostly stay in the caches."""


class PresenceSampler:
    """Marks what gradients have of ``sample`` units, or of all where there are fewer; the same units on all ranks."""

    def __init__(self, sample: int) -> None:
        self.sample = sample
        self._ids: dict[tuple[int, torch.device], torch.Tensor] = {}

    def marked(self, gradient: torch.Tensor, layout: Layout) -> torch.Tensor:
        """Marks of the sampled units that ``gradient`` has, then 0, or 1 for a failure; [s + 1] uint8 on the CPU."""
        ids = self._sampled(layout.units, gradient.device)
        marked = torch.zeros(len(ids) + 1, dtype=torch.uint8)
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
    """The smallest type that counts so many ranks."""
    return torch.uint8 if ranks <= 255 else torch.int32


def _held(gradient: torch.Tensor, layout: Layout, ids: torch.Tensor) -> torch.Tensor:
    """A byte for each of the units ``ids`` [s], ascending: 1 if ``gradient`` has it; [s] uint8, on its device."""
    contribution = contribution_of(gradient, layout)
    if contribution.unit_ids is None:
        rows = contribution.values.view(layout.units, layout.width)
        return torch.cat([_touched(rows, some) for some in torch.split(ids, _ROWS_AT_ONCE)])
    held = torch.zeros(len(ids), dtype=torch.uint8, device=gradient.device)
    place = torch.searchsorted(ids, contribution.unit_ids).clamp_(max=len(ids) - 1)
    held[place[ids[place] == contribution.unit_ids]] = 1
    return held


def _touched(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """A byte for each of the rows ``ids`` [s]: 1 if not all zeros. Twice as fast as rows[ids] and any()."""
    return (rows.index_select(0, ids).abs().amax(dim=1) != 0).to(torch.uint8)
