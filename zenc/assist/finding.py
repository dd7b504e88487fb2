"""The doctor: checks of zenc's needs on this machine, each tried and not only looked up.

Finding = name x status x value x notes x help x id?
Status  = good | warning | absent | broken              # absent: not here, and not needed by what runs here
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from zenc.errors import ZencError

Status = Literal["good", "warning", "absent", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: a status, the value found, and help; ``id`` is that of its diagnostic, if any.

    Only ``broken`` keeps zenc from working on this machine.
    """

    name: str
    status: Status
    value: str
    notes: tuple[str, ...] = ()
    help: str | None = None
    id: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON data."""
        return {**asdict(self), "notes": list(self.notes)}


def of_error(name: str, error: ZencError) -> Finding:
    """Return the first diagnostic of ``error``, as a broken finding."""
    first = error.diagnostics[0]
    return Finding(name, "broken", first.message, first.notes, first.help, first.id)
