"""Memory of a GPU that calls of the CUDA target take beside input and result, counted over the emulator.

python -m tests.support.device_memory     prints the table
"""

from dataclasses import dataclass

import torch

from tests.support.emulated import Emulated, Result
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.plan.requirements import allowed


@dataclass(frozen=True)
class Taken:
    """Memory of a second call, without its result, on the rank that takes most beyond its payload."""

    scheme: str
    size: int
    units: int
    width: int
    ids: int
    """Ids of the rank's own gradient, duplicates counted."""
    taken: int
    """Taken bytes."""
    moved: int
    """Bytes that the rank sends and receives: the payload."""

    @property
    def bitmap(self) -> int:
        """The bytes of a bit a unit."""
        return -(-self.units // 8)

    @property
    def beyond(self) -> float:
        """Memory beyond the payload, in bitmaps."""
        return (self.taken - self.moved) / self.bitmap

    def __str__(self) -> str:
        return f"{self.taken:,} / {self.moved:,}: {self.beyond:.1f}"


def taken(scheme: str, size: int, units: int, width: int, density: float, dense: bool = False, times: int = 1) -> Taken:
    """Measure random float32 gradients of ``density`` on each rank, every unit ``times`` times; COO or ``dense``."""
    generator = torch.Generator().manual_seed(units + size)
    inputs = [_drawn(units, width, int(units * density), times, generator) for _ in range(size)]
    ids = inputs[0]._nnz()
    if dense:
        inputs = [tensor.to_dense() for tensor in inputs]
    with Emulated(plan_of_shipped(scheme), size) as ranks:
        wanted = [result.call.arena_wanted for result in ranks.run(inputs)]
        arenas = [rank.device.allocate(bytes) for rank, bytes in zip(ranks.ranks, wanted, strict=True)]
        results = ranks.run(inputs, arena=arenas, arena_bytes=wanted)
    counted = []
    for result in results:
        assert isinstance(result, Result), result
        moved = sum(phase.bytes_sent + phase.bytes_received for phase in result.call.phases)
        counted.append((result.call.arena_wanted, moved))
    most = max(counted, key=lambda each: each[0] - each[1])
    return Taken(scheme, size, units, width, ids, *most)


def _drawn(units: int, width: int, count: int, times: int, generator: torch.Generator) -> torch.Tensor:
    ids = torch.randperm(units, generator=generator)[:count].repeat(times)
    values = torch.randn(len(ids), width, generator=generator)
    return torch.sparse_coo_tensor(ids[None], values, (units, width), check_invariants=False)


CASES = ((1 << 17, 1, 0.01, False), (1 << 17, 1, 0.1, False), (1 << 14, 64, 0.01, False), (1 << 17, 1, 0.01, True))
"""Units, width, density, and whether the tensor is dense."""


def table() -> str:
    """Return a Markdown table of every shipped scheme's memory, in bytes, and beyond the payload, in bitmaps."""
    lines = ["| scheme | ranks |" + "".join(f" {_title(*case)} |" for case in CASES)]
    lines += ["| --- | --: |" + " --: |" * len(CASES)]
    for name in SHIPPED:
        size = allowed(plan_of_shipped(name), (4, 8))[0]
        cells = [str(taken(name, size, *case)) for case in CASES]
        lines.append(f"| `{name}` | {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _title(units: int, width: int, density: float, dense: bool) -> str:
    return f"{units:,} x {width}, {100 * density:g} %{', dense' if dense else ''}"


if __name__ == "__main__":
    print(table())
