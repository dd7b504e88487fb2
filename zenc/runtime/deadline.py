"""The deadline of waits: what the caller gives, else ZENC_DEADLINE_S, else the process group's own timeout."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, ZencError

UNKNOWN_TIMEOUT = 1800.0
"""Seconds, for a group whose backends don't say theirs: torch's default of all but NCCL."""


def deadline_of(given: float | None, group: dist.ProcessGroup | None) -> float:
    """Seconds that any single wait may take among the ranks of ``group`` (default: all ranks).

    Raises ZencError (``bad-deadline``) for what is no number of seconds above 0.
    """
    said = os.environ.get("ZENC_DEADLINE_S") if given is None else given
    try:
        chosen = _timeout(group) if said is None else float(said)
    except ValueError:
        chosen = -1.0
    if not 0 < chosen < float("inf"):
        raise ZencError(Diagnostic("bad-deadline", f"a deadline is a number of seconds above 0, not {said!r}"))
    return chosen


def _timeout(group: dist.ProcessGroup | None) -> float:
    """The longest timeout of the backends of ``group``; there may be one for each type of device."""
    of = dist.group.WORLD if group is None and dist.is_available() and dist.is_initialized() else group
    if not isinstance(of, dist.ProcessGroup):
        return UNKNOWN_TIMEOUT  # what is wrong with the group is said by who makes connections
    backends = [of._get_backend(torch.device(device)) for device in of._device_types]
    found = [getattr(getattr(backend, "options", None), "_timeout", None) for backend in backends]
    return max((timeout.total_seconds() for timeout in found if timeout is not None), default=UNKNOWN_TIMEOUT)
