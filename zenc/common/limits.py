"""Ranges of the numbers that users give: written once, and asked wherever such a number comes in.

    LIMITS = name -> Limit # the name of a number -> least, most, and its unit

They end where the next number would be a slip of a unit, or would leave what floats, clocks and the C++ beside count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Limit:
    """A range of numbers, both ends included, and their unit."""

    least: float
    most: float
    unit: str = ""

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most

    @property
    def words(self) -> str:
        """The range as the end of a sentence about what it is of: ``is 0 to 1 s``."""
        return f"is {self.least:g} to {self.most:g}{' ' * bool(self.unit)}{self.unit}"

    def problem(self, value: float) -> str | None:
        """Return the end of a sentence with the reason why ``value`` is outside of the range; None if it is inside."""
        return None if value in self else f"{self.words}, not {value:g}"


LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "bandwidth": Limit(1.0, 1e18, "bytes/s"),
        "latency": Limit(0.0, 1.0, "s"),
        "memory": Limit(0.0, 1e18, "bytes"),
        "speed": Limit(1.0, 1e300, "bytes/s"),
        "seconds": Limit(0.0, 1e6, "s"),
        "bytes": Limit(0.0, 1e18, "bytes"),
        "efficiency": Limit(0.001, 1.0),
        "spread": Limit(0.0, 1e9),
        "cores": Limit(1, 1 << 20),
        "deadline": Limit(0.001, 1e9, "s"),
        "simulated ranks": Limit(1, 4096),
    }
)
