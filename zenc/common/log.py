"""The logger ``zenc``: notices to a user who did not ask.

A program that configures logging decides alone where notices go. One that does not still sees them, on stderr.
"""

from __future__ import annotations

import logging
import sys

from zenc.errors import printable

LOGGER = logging.getLogger("zenc")


class _CurrentStderr(logging.Handler):
    """A handler that writes to the present ``sys.stderr``, which programs replace, until logging is configured."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not logging.getLogger().handlers and (record.levelno > logging.INFO or hasattr(record, "is_notice"))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        sys.stderr.write(printable(text if text.startswith("zenc.") else f"zenc: {text}", lines=True) + "\n")
        sys.stderr.flush()


def notice(message: str) -> None:
    """Log ``message`` at INFO, on stderr if neither the logger ``zenc`` nor the root logger has a handler."""
    if not LOGGER.handlers and not logging.getLogger().handlers:
        LOGGER.addHandler(_CurrentStderr())
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)
    LOGGER.info("%s", message, extra={"is_notice": True})
