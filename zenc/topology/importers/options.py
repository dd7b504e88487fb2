"""Import options: numbers that a file leaves open, given by its reader. Bandwidths bytes a second, latency seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from zenc.errors import Diagnostic, Span, TopologyError
from zenc.topology import link_specs


@dataclass(frozen=True, slots=True)
class Options:
    """``nodes`` machines like the one of the file; bytes a second and seconds. None: what the file says, or a default.

    ``given`` are the names of those that were given, and ``span`` is where.
    """

    nodes: int = 1
    nvlink_bandwidth: float | None = None
    xgmi_bandwidth: float | None = None
    nvswitch_bandwidth: float | None = None
    pcie_bandwidth: float | None = None
    network_bandwidth: float | None = None
    network_latency: float = link_specs.NETWORK_LATENCY
    given: tuple[str, ...] = ()
    span: Span | None = None

    @classmethod
    def of(cls, values: Mapping[str, int | float | None], span: Span | None) -> Options:
        """The options that are not None; raises TopologyError (``wrong-range``) for fewer than one node."""
        known: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        options = cls(**known, given=tuple(known), span=span)
        if options.nodes < 1:
            raise TopologyError(Diagnostic("wrong-range", f"nodes is {options.nodes}, and must be at least 1", span))
        return options

    def refuse(self, kind: str) -> None:
        """Raise TopologyError if an option was given for a file that says everything itself."""
        if self.given:
            message = f"{kind} says everything itself, and takes no '{self.given[0]}'"
            raise TopologyError(Diagnostic("wrong-arguments", message, self.span))


IMPORT_OPTIONS = tuple(field.name for field in fields(Options) if field.name not in ("given", "span"))
