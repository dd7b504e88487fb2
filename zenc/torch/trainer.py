"""Callback for the Hugging Face Trainer: ``trainer.add_callback(TrainerAttach(trainer, "auto"))``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from zenc.torch.attach import attach
from zenc.torch.handle import Attachment
from zenc.torch.slot import slot_of


class TrainerAttach(TrainerCallback):
    """Attachment of a scheme to the model that ``trainer`` wraps in DDP when training begins.

    It needs the trainer itself, since callbacks are given the model without its wrapper. ``scheme`` and ``options`` are
    those of ``zenc.attach``; ``handle`` is what it returns, None before training.
    """

    def __init__(self, trainer: Any, scheme: Any = "auto", **options: Any) -> None:
        self.trainer, self.scheme, self.options = trainer, scheme, options
        self.handle: Attachment | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Attach the scheme to ``trainer.model_wrapped``, which may have it from before; raises as ``zenc.attach``."""
        model = self.trainer.model_wrapped
        if self.handle is None or not (slot := slot_of(model)) or not slot.tenant:
            self.handle = attach(model, self.scheme, **self.options)
