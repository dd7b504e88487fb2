"""Memory of a GPU that calls take beside input and result: bitmaps beyond the payload (docs/reference/cuda.md)."""

from dataclasses import dataclass

import pytest
import torch

from tests.support.emulated import Emulated, Result
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.plan.requirements import allowed

SMALL = 16_384
"""Bytes of tables, counts and scans, whatever the gradient."""

CASES = [(1 << 18, 1, 0.01), (1 << 14, 64, 0.01), (1 << 15, 1, 0.3)]
"""Units, width, density."""


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


def taken_of(name, case):
    return taken(name, allowed(plan_of_shipped(name), (4, 8))[0], *case)


QUICK = {"balanced": CASES[::2]}
SPREAD = ("balanced", "dense_halving_doubling", "dense_ring", "omnireduce", "sparcml_split", "sparse_ps", "zen")
"""Schemes in which a rank gets pieces of its own part only, which are one bitmap together."""


def beyond_marks(found):
    """Return bytes beyond the payload and a bitmap; beside SPREAD one for each rank, each with ranks of an eighth."""
    most = found.bitmap if found.scheme in SPREAD else 9 / 8 * (found.size + 1) * found.bitmap + SMALL
    return max(0, found.taken - found.moved - most)


@pytest.mark.one_in(1)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=[] if case in QUICK.get(name, []) else [pytest.mark.slow], id=f"{name} {number}")
        for name in SHIPPED
        for number, case in enumerate(CASES)
    ],
)
def test_it_is_marks_beyond_the_payload(name, case):
    assert beyond_marks(taken_of(name, case)) == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["balanced", "agsparse", "hierarchical_centralization", "holders"])
def test_so_it_is_for_dense_tensors(name):
    assert beyond_marks(taken_of(name, (1 << 17, 1, 0.01, True))) == 0


def test_so_it_is_where_next_to_nothing_is_sent():
    found = taken_of("agsparse", (1 << 18, 1, 0.0005))
    assert found.moved < found.bitmap / 2
    assert beyond_marks(found) == 0


def test_balanced_needs_less_than_it_moves_where_rows_are_wide():
    found = taken("balanced", 4, 1 << 15, 64, 0.01)
    assert found.taken < found.moved


def test_duplicates_are_sorted_in_memory_that_is_used_again():
    """Sorting takes some 26 bytes an id, which received messages use later, so that not all of it adds up."""
    once, twice = (taken("balanced", 4, 1 << 16, 4, 0.02, times=times) for times in (1, 2))
    assert twice.ids == 2 * once.ids
    assert twice.taken - once.taken <= 24 * twice.ids + SMALL
