"""Collectives of one scheme, a process group each: frameworks say in a call which group it is for."""

from __future__ import annotations

import torch.distributed as dist

from zenc.api import load
from zenc.runtime.collective import Collective
from zenc.torch.attach import Scheme


class ByGroup:
    """``scheme`` on each group that asks for it, loaded in its first call, by its ranks together."""

    def __init__(self, scheme: Scheme, deadline: float | None = None) -> None:
        self._scheme, self._deadline = scheme, deadline
        self._loaded: dict[dist.ProcessGroup, Collective] = {}

    def on(self, group: dist.ProcessGroup | None) -> Collective:
        """The collective of ``group`` (default: all ranks); raises as ``zenc.load``."""
        of = dist.group.WORLD if group is None else group
        assert of is not None
        if of not in self._loaded:
            self._loaded[of] = load(self._scheme, of, deadline=self._deadline)
        return self._loaded[of]
