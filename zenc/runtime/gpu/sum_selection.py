"""Selection of sums on a GPU: an owner's selection of a part, whose values C++ has in the GPU's memory.

The kernels of contributions take the units; the others become +0, and are added to where losses are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from zenc.runtime.compression.gpu_contribution import GpuContribution
from zenc.runtime.compression.gpu_kernels import GpuCompression
from zenc.runtime.compression.losses import CallLosses
from zenc.runtime.gpu.call_args import CHOOSE
from zenc.runtime.layout import Layout
from zenc.scheme.compression import Selection


class SumSelection:
    """Selections within one call: ``selections`` by phase, which are made before it; ``callback`` is for C++."""

    def __init__(
        self, kernels: GpuCompression, layout: Layout, selections: Sequence[tuple[Selection, ...]], losses: CallLosses
    ) -> None:
        self._kernels, self._layout, self._selections, self._losses = kernels, layout, selections, losses
        self.failure: Exception | None = None
        self.callback = CHOOSE(self._choose)

    def _choose(self, _: object, phase: int, slots: int, values: int, loss: int | None, key: int) -> int:
        try:
            self._chosen(self._selections[phase], slots, values, loss or 0, key)
        except Exception as error:  # no exception crosses C++
            self.failure = error
            return 0
        return 1

    def _chosen(self, selection: tuple[Selection, ...], slots: int, values: int, loss: int, key: int) -> None:
        chosen = self._losses.chosen(selection)
        if not chosen:
            return
        of_part = self._array(values, slots, self._layout.dtype)
        left = self._kernels.memory(4 * of_part.numel()).view(torch.float32).view_as(of_part)
        work = GpuContribution(self._kernels, of_part, None, left)
        work.contribute(None, chosen, self._losses.draw(slots, key))
        if loss:
            self._array(loss, slots, torch.float32).add_(left)

    def _array(self, address: int, slots: int, dtype: torch.dtype) -> torch.Tensor:
        width = self._layout.width
        return self._kernels.gpu.view(address, slots * width * dtype.itemsize).view(dtype).view(slots, width)
