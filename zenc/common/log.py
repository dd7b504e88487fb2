"""The logger ``zenc``: notices to a user who did not ask.

A program that configures logging decides alone where notices go. One that does not still sees them, on stderr.
"""

from __future__ import annotations

import logging
import sys

from zenc.errors import printable

LOGGER = logging.getLogger("zenc")


class _CurrentStderr(logging.Handler):
    """A handler that writes notices, warnings and errors to the present ``sys.stderr``, since programs replace it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or getattr(record, "is_notice", False)

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(printable(self.format(record), lines=True) + "\n")
        sys.stderr.flush()


def notice(message: str) -> None:
    """Log ``message`` at INFO, on stderr if neither the logger ``zenc`` nor the root logger has a handler."""
    if not LOGGER.handlers and not logging.getLogger().handlers:
        handler = _CurrentStderr()
        handler.setFormatter(logging.Formatter("zenc: %(message)s"))
        LOGGER.addHandler(handler)
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)
    LOGGER.info("%s", message, extra={"is_notice": True})
