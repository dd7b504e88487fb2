"""Callback for the Hugging Face Trainer: ``trainer.add_callback(TrainerAttach(trainer, "auto"))``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from zenc.torch.attach import attach
from zenc.torch.handle import Attachment


class TrainerAttach(TrainerCallback):
    """Attachment of a scheme to the model that ``trainer`` wraps in DDP when training begins.

    It needs the trainer itself, since callbacks are given the model without its wrapper. ``scheme`` and ``options`` are
    those of ``zenc.attach``; ``handle`` is what it returns, None before training.
    """

    def __init__(self, trainer: Any, scheme: Any = "auto", **options: Any) -> None:
        self.trainer, self.scheme, self.options = trainer, scheme, options
        self.handle: Attachment | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Attach the scheme to ``trainer.model_wrapped``; raises as ``zenc.attach``."""
        self.handle = attach(self.trainer.model_wrapped, self.scheme, **self.options)
