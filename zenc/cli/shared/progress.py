"""Progress on standard error, for verbs that may take long."""

from __future__ import annotations

import sys
import time

SECONDS_OF_SILENCE = 2.0


class Progress:
    """Says what ``zenc VERB`` is at, once that takes longer than a moment, and at most every ``pause`` seconds.

    Plain lines, where rich would draw a bar: they can be read in the log of a job, too.
    """

    def __init__(self, verb: str, pause: float = 0.0) -> None:
        self.verb, self.pause = verb, pause
        self.due = time.monotonic() + SECONDS_OF_SILENCE

    def __call__(self, what: str) -> None:
        """Say that ``what`` is being done now."""
        if (now := time.monotonic()) >= self.due:
            self.due = now + self.pause
            print(f"zenc {self.verb}: {what} ...", file=sys.stderr)
