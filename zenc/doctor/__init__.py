"""The doctor: checks of zenc's needs on this machine, each tried and not only looked up.

Finding = name x status x value x notes x help x id?
Status  = good | warning | absent | broken              # absent: not here, and not needed by what runs here
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def examine() -> Iterator[Finding]:
    """Yield the checks in the order of need: some take a second, so show each at once.

    It raises nothing: a failure is a finding.
    """
    from zenc.doctor import checks, network

    yield from _tried("zenc", checks.own_files)
    yield from _tried("torch", checks.torch_version)
    yield from _tried("compiler", checks.compiler)
    yield from _tried("cache", checks.cache)
    yield from _tried("kernels", checks.trial)
    yield from _tried("network", network.interface)
    yield from _tried("deadline", checks.deadline)
    yield from _tried("gpus", checks.devices)
    yield from _tried("gpu compiler", checks.device_compiler)
    yield from _tried("nccl", checks.nccl)
    yield from _tried("plots", checks.plots)


def _tried(name: str, look: Callable[[], Finding]) -> Iterator[Finding]:
    try:
        yield look()
    except ZencError as error:
        yield of_error(name, error)
    except ImportError as problem:  # PyTorch, which has a finding of its own
        yield Finding(name, "broken", f"can't be looked at: {problem}")
