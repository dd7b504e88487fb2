"""The handle of a scheme at work in a DDP model: what ``zenc.attach`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zenc.cost.deciding import Decision
from zenc.runtime.collective import Collective
from zenc.torch.hook import ZencState
from zenc.torch.slot import Slot
from zenc.torch.unused import UnusedWatch


@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    """A scheme at work in a DDP model. ``parameters`` are the names of those whose gradients go through it.

    Copied or unpickled, with whatever holds it, a handle keeps these names and nothing else.
    """

    state: ZencState
    parameters: tuple[str, ...]
    _slot: Slot
    _watch: UnusedWatch

    @property
    def collective(self) -> Collective:
        """The loaded scheme; raises SchemeError (``not-attached``) where this handle is a copy."""
        return self.state.collective

    @property
    def stats(self) -> dict[str, dict[str, Any]]:
        """Parameter name -> what its last synchronisation did: see ``Collective.stats``."""
        return self.state.stats

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Which scheme sums which parameter, and why, where the scheme chooses among others; else there are none."""
        return self.collective.decisions

    @property
    def is_attached(self) -> bool:
        """Whether the gradients of the model go through the scheme."""
        return self._slot.tenant is self.state

    def detach(self) -> None:
        """Give the model back to DDP, whose own all-reduce averages all gradients from the next backward pass on.

        All ranks call it between the same two steps. ``stats`` and the like stay; ``zenc.attach`` may follow.
        """
        if self.is_attached:
            self._slot.tenant = None
        self._watch.remove()

    def __repr__(self) -> str:
        how = "" if self.is_attached else " (detached)"
        return f"<zenc.Attachment {', '.join(self.parameters) or 'of no parameter'}: {self.state!r}{how}>"
