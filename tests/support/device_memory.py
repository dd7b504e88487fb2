"""Memory of a GPU that calls of the CUDA target take beside input and result, counted over the emulator."""

from dataclasses import dataclass

import torch

from tests.support.emulated import Emulated, Result
from tests.support.shipped import plan_of_shipped


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
