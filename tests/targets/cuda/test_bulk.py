"""Rows copied through shared memory by bulk copies: the same bits, from the same addresses, and nothing else.

Rows are shorter than a stage, a little longer, or several stages long; threads run in other orders, in which the
emulator delivers copies at once, or when they are waited for.
"""

import re
from typing import Any

import numpy as np
import pytest
import torch

from tests.emulator.device import Device
from tests.support.emulated import Emulated
from tests.support.packing import Packer, partition
from tests.support.pieces import table
from tests.support.shipped import plan_of_shipped
from tests.targets.cuda.test_expand import drawn as drawn_parts
from tests.targets.cuda.test_expand import found_units, row_bytes
from tests.targets.cuda.test_merge import assert_same_sums, cpu_merged, drawn, merged
from tests.targets.cuda.test_place import dense_faults, unit_faults
from tests.targets.cuda.test_place import drawn as drawn_rows

WIDTHS = (252, 260, 1000)
"""Values of rows, in float32 of 1,008, 1,040 and 4,000 bytes."""
COPYING = re.compile("zenc_((merge|place_once|place_dense)_(16|32|64)|spread|expand_dense|expand_units)")


class InBulk:
    """The kernels of ``device``, with those for bulk copies where there are any; ``launched`` are their names."""

    def __init__(self, device: Device) -> None:
        self.device, self.launched = device, set[str]()

    def launch(self, name: str, *arguments: Any, **more: Any) -> None:
        if COPYING.fullmatch(name):
            self.launched.add(name)
            name += "_bulk"
        self.device.launch(name, *arguments, **more)


@pytest.fixture
def bulk(device_of) -> InBulk:
    return InBulk(device_of("permutation"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_are_packed_as_on_the_cpu(bulk, permuting, at, seed):
    rng = np.random.default_rng(seed)
    for width in WIDTHS:
        tensors = at.Tensors(permuting, permuting.geometry(60, width, 3, dense=True), at.DTYPES[0])
        packer = Packer(bulk, tensors, 2, seed)
        assert unit_faults(packer, rng.permutation(60)[:40], drawn_rows(tensors.dtype, 40, width, rng), 1) == []
        tensor = drawn_rows(tensors.dtype, 60, width, rng)
        tensor[rng.random(60) < 0.5] = 0
        assert dense_faults(packer, tensor, 1 + seed) == []
    assert bulk.launched == {"zenc_place_once_32", "zenc_place_dense_32"}


@pytest.mark.parametrize("name", ["f32", "f64", "f16"])
def test_sums_are_those_of_the_cpu(bulk, permuting, at, name):
    """Rows have one piece, which is copied, or several: up to 32, and more."""
    rng = np.random.default_rng(31)
    for seed, (pieces, width) in enumerate([(2, 256), (8, 264), (33, 512)]):
        given = [[drawn(at, rng, name, n, width, 1.5 / pieces, start=2) for _ in range(pieces)] for n in (150, 70)]
        for target, mine in zip(merged(bulk, name, given, [150, 70], width, order=seed), given, strict=True):
            expected = cpu_merged(permuting, at, name, mine, target.slots, width)
            assert_same_sums(at, name, target, expected, mine)
    assert len(bulk.launched) == 1


@pytest.mark.parametrize("keeps", [0, 1])
def test_results_are_those_of_the_cpu(bulk, permuting, at, keeps):
    for seed, width in enumerate(WIDTHS):
        tensors = at.Tensors(permuting, permuting.geometry(90, width, 3, dense=True), at.DTYPES[0])
        bitmap, placed, pieces = drawn_parts(tensors, at, 0.4)
        out = np.zeros((90, width), np.float32) if keeps else np.full((90, width), 7, np.float32)
        arguments = [partition(tensors.geometry), table(pieces), row_bytes(tensors), None, keeps, out]
        bulk.launch("zenc_expand_dense", (2, 1), arguments, seed=seed)
        assert np.array_equal(out.view(np.uint32), tensors.expand_dense(bitmap, placed).view(np.uint32))
        found, (units, rows) = found_units(bulk, tensors, (2, 2), pieces), tensors.expand_units(bitmap, placed)
        ids, out = np.zeros(len(placed), np.int64), np.zeros_like(rows)
        arguments = [partition(tensors.geometry), table(pieces), table([found]), row_bytes(tensors), ids, out]
        bulk.launch("zenc_expand_units", (2, 1), arguments, seed=seed)
        assert np.array_equal(ids, units) and np.array_equal(out.view(np.uint32), rows.view(np.uint32))


ROWS = 1_040
"""Bytes of the rows of whole calls."""


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("balanced", {"place_once_32", "merge_32", "expand_units"}),
        ("holders", {"split_rows", "merge_32", "join_units"}),
        ("sparse_then_dense", {"place_once_32", "merge_32", "spread", "expand_units"}),
    ],
)
def test_calls_of_long_rows_launch_them_and_sum_the_same(name, kernels):
    """The tensor has to begin at a multiple of 16 bytes, as every fourth one does here."""
    rows = [torch.randn(20, ROWS // 4, generator=torch.Generator().manual_seed(rank)) for rank in range(3)]
    ids = [torch.randperm(40, generator=torch.Generator().manual_seed(rank))[None, :20] for rank in range(3)]
    shape = 40, ROWS // 4
    tensors = [torch.sparse_coo_tensor(*each, shape, check_invariants=False) for each in zip(ids, rows, strict=True)]
    with Emulated(plan_of_shipped(name), 3) as ranks:
        calls = ranks.ranks[0].device.libraries.calls

        def called() -> tuple[set[str], list[torch.Tensor]]:
            before = {each: calls(f"zenc_{each}_bulk", 0) for each in kernels}
            sums = [each.tensor for each in ranks.run(tensors)]
            return {each for each in kernels if calls(f"zenc_{each}_bulk", 0) > before[each]}, sums

        found = [called() for _ in range(4)]
    assert [launched for launched, _ in found] == [set(), set(), set(), kernels]
    for one, other in zip(found[0][1], found[3][1], strict=True):
        assert torch.equal(one._indices(), other._indices()) and torch.equal(one._values(), other._values())
