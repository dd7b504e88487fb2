"""Callback for Lightning: ``Trainer(strategy="ddp", callbacks=[LightningAttach("auto")])``."""

from __future__ import annotations

from typing import Any

import lightning

from zenc.torch.attach import attach
from zenc.torch.handle import Attachment


class LightningAttach(lightning.Callback):
    """Attachment of a scheme to the model that Lightning wraps in DDP when ``fit`` begins.

    ``scheme`` and ``options`` are those of ``zenc.attach``; ``handle`` is what it returns, None before ``fit``.
    """

    def __init__(self, scheme: Any = "auto", **options: Any) -> None:
        self.scheme, self.options = scheme, options
        self.handle: Attachment | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the scheme to ``trainer.strategy.model``; raises as ``zenc.attach``."""
        self.handle = attach(trainer.strategy.model, self.scheme, **self.options)
