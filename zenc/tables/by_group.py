"""Collectives of one scheme, a process group each: frameworks name the group in a call."""

from __future__ import annotations

from collections.abc import Mapping

import torch.distributed as dist

from zenc.api import load
from zenc.runtime.call.collective import Collective
from zenc.runtime.load import obtained_by_all
from zenc.torch.attach import Scheme


class ByGroup:
    """The collectives of ``scheme`` on each group that asks for it, loaded in its first call by its ranks together.

    ``options``: further options that must be the same on all of them, by name.
    """

    def __init__(self, scheme: Scheme, deadline: float | None, options: Mapping[str, str]) -> None:
        self._scheme, self._deadline, self._options = scheme, deadline, dict(options)
        self._loaded: dict[dist.ProcessGroup, Collective] = {}

    def on(self, group: dist.ProcessGroup | None) -> Collective:
        """Return the collective of ``group`` (default: all ranks); raises as ``zenc.load`` does."""
        of = dist.group.WORLD if group is None else group
        assert of is not None
        if of not in self._loaded:
            obtained_by_all(lambda _: None, lambda _: self._options, of, self._deadline)
            self._loaded[of] = load(self._scheme, of, deadline=self._deadline)
        return self._loaded[of]
