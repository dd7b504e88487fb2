"""Layouts: tensors and arrays of other libraries become units, and results tensors again."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from zenc.errors import TensorError
from zenc.runtime.call.layout import as_tensor, contribution_of, layout_of, sparse_result
from zenc.scheme.model import Unit


def coo(shape: tuple[int, ...], sparse_dim: int, entries: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    """Return a sparse tensor with ``entries`` entries, some of which may be in one place."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.stack([torch.randint(0, n, (entries,), generator=generator) for n in shape[:sparse_dim]])
    values = torch.randint(-9, 9, (entries, *shape[sparse_dim:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)


@pytest.mark.parametrize(
    ("tensor", "unit", "units", "width"),
    [
        (torch.zeros(4, 3, 2), Unit.AUTO, 24, 1), (torch.zeros(4, 3, 2), Unit.ELEMENT, 24, 1),
        (torch.zeros(4, 3, 2), Unit.ROW, 4, 6), (torch.zeros(5), Unit.ROW, 5, 1),
        (torch.tensor(3.0), Unit.ROW, 1, 1), (torch.zeros(0, 3), Unit.ROW, 0, 3),
        (torch.zeros(3, 0), Unit.ROW, 0, 0), (coo((4, 3, 2), 1, 2), Unit.AUTO, 4, 6),
        (coo((4, 3, 2), 2, 2), Unit.AUTO, 12, 2), (coo((4, 3, 2), 2, 2), Unit.ROW, 4, 6),
        (coo((4, 3, 2), 3, 2), Unit.ROW, 4, 6), (coo((4, 3, 2), 1, 2), Unit.ELEMENT, 24, 1),
        (coo((7,), 1, 2), Unit.ROW, 7, 1),
    ],
)  # fmt: skip
def test_units_and_width(tensor, unit, units, width):
    layout = layout_of(tensor, unit)
    assert (layout.units, layout.width) == (units, width)
    assert layout.is_sparse == tensor.is_sparse and layout.shape == tensor.shape


def summed(tensor: torch.Tensor, unit: Unit) -> torch.Tensor:
    """Sort units and add equal ones, as a call with one rank does."""
    layout = layout_of(tensor, unit)
    contribution = contribution_of(tensor, layout)
    assert contribution.unit_ids is not None and contribution.unit_ids.is_contiguous()
    assert contribution.values.is_contiguous()
    values = contribution.values.reshape(-1, layout.width)
    ids, place = torch.unique(contribution.unit_ids, return_inverse=True)
    rows = torch.zeros(ids.numel(), layout.width, dtype=values.dtype).index_add_(0, place, values)
    return sparse_result(ids, rows, layout)


@settings(max_examples=tried(200), deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    entries=st.integers(0, 12),
    unit=st.sampled_from(Unit),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_there_and_back(shape, entries, unit, seed, data):
    sparse_dim = data.draw(st.integers(1, len(shape)))
    tensor = coo(tuple(shape), sparse_dim, entries, seed)
    result = summed(tensor, unit)
    assert result.is_coalesced() and result.shape == tensor.shape
    assert (result.sparse_dim(), result.dense_dim()) == (tensor.sparse_dim(), tensor.dense_dim())
    assert torch.equal(result.to_dense(), tensor.to_dense())
    flat = [0] * result._nnz()
    for extent, column in zip(shape, result._indices().tolist(), strict=False):
        flat = [index * extent + i for index, i in zip(flat, column, strict=True)]
    assert flat == sorted(set(flat)), "indices ascend, each is there once"
    if unit is Unit.AUTO:
        assert torch.equal(result._indices(), tensor.coalesce()._indices()), "no unit is lost or made up"


def test_units_that_are_several_of_the_tensors_own():
    tensor = coo((4, 2, 3), 2, 7)
    result = summed(tensor, Unit.ROW)
    assert result._values().shape == (result._nnz(), 3) and torch.equal(result.to_dense(), tensor.to_dense())


def test_dense_tensors_share_their_memory():
    tensor = torch.arange(6.0).reshape(2, 3)
    contribution = contribution_of(tensor, layout_of(tensor, Unit.ROW))
    assert contribution.unit_ids is None and contribution.values.data_ptr() == tensor.data_ptr()
    turned = tensor.t()
    assert contribution_of(turned, layout_of(turned, Unit.ROW)).values.flatten().tolist() == turned.flatten().tolist()


def test_gradients_of_embeddings_share_their_memory():
    tensor = coo((50, 4), 1, 7)
    contribution = contribution_of(tensor, layout_of(tensor, Unit.AUTO))
    assert contribution.unit_ids.data_ptr() == tensor._indices().data_ptr()
    assert contribution.values.data_ptr() == tensor._values().data_ptr()


def test_what_needs_a_gradient_is_not_differentiated():
    tensor = torch.ones(3, requires_grad=True)
    assert not contribution_of(tensor, layout_of(tensor, Unit.AUTO)).values.requires_grad


def test_16_bit_rows_are_collected_in_float32():
    """The sum of three entries of one place is exact only if it is rounded once."""
    indices = torch.tensor([[0, 0, 0], [1, 1, 1]])
    tensor = torch.sparse_coo_tensor(
        indices, torch.tensor([2048.0, 1.0, 1.0], dtype=torch.float16), (1, 2), check_invariants=True
    )
    layout = layout_of(tensor, Unit.ROW)
    assert contribution_of(tensor, layout).values.flatten().tolist() == [0.0, 2050.0]


@pytest.mark.parametrize("sparse_dim", [1, 2])
def test_shapes_that_cannot_be_counted(sparse_dim):
    with pytest.raises((TensorError, RuntimeError), match=r"tensor-too-large|overflow"):
        shape = (1 << 62, 4)
        empty = torch.sparse_coo_tensor(
            torch.zeros(sparse_dim, 0, dtype=torch.long),
            torch.zeros(0, *shape[sparse_dim:]),
            shape,
            check_invariants=True,
        )
        layout_of(empty, Unit.AUTO)


def test_2_to_the_62_is_the_most():
    for rows, fits in ((1 << 62, False), ((1 << 62) - 1, True)):
        tensor = torch.sparse_coo_tensor(
            torch.zeros(1, 0, dtype=torch.long), torch.zeros(0), (rows,), check_invariants=True
        )
        if fits:
            assert math.prod(layout_of(tensor, Unit.AUTO).shape) == rows
        else:
            with pytest.raises(TensorError, match="tensor-too-large"):
                layout_of(tensor, Unit.AUTO)


class Foreign:
    """An array of a library that knows only DLPack, in the memory of ``tensor``."""

    def __init__(self, tensor: torch.Tensor, device: tuple[int, int] | None = None) -> None:
        self.tensor, self.device = tensor, device

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.device or self.tensor.__dlpack_device__()


@pytest.mark.parametrize("shape", [(), (0,), (5,), (7, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_of_numpy_are_summed_in_place(shape, dtype):
    arrays = [np.random.default_rng(rank).integers(-9, 9, shape).astype(dtype) for rank in range(3)]
    expected = sum(array.astype(np.float64) for array in arrays)
    ranks = collectives(zenc.compile("balanced"), 3)
    results = run_all(ranks, arrays)
    for array, found in zip(arrays, results, strict=True):
        assert found is array and np.array_equal(array, expected)


@pytest.mark.parametrize("view", [lambda whole: whole.T, lambda whole: whole[::2], lambda whole: whole[:, 1:3]])
def test_views_of_arrays_are_summed_and_nothing_beside_them(view):
    whole, alone = np.arange(24, dtype=np.float32).reshape(6, 4), np.zeros((6, 4), dtype=bool)
    view(alone)[...] = True
    expected = np.where(alone, whole * 2, whole)
    ranks = collectives(zenc.compile("holders"), 2)
    run_all(ranks, [view(whole), view(whole.copy())])
    assert np.array_equal(whole, expected)


def test_any_library_with_dlpack_and_asynchronously():
    tensor = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    foreign = Foreign(tensor)
    (collective,) = collectives(zenc.compile("balanced"), 1)
    assert collective.all_reduce(foreign) is foreign
    work = collective.all_reduce(foreign, async_op=True)
    assert work.wait().data_ptr() == tensor.data_ptr()


def test_an_array_of_a_gpu_without_a_pytorch_for_gpus():
    of_cuda = (int(torch.utils.dlpack.DLDeviceType.kDLCUDA), 0)
    with pytest.raises(TensorError, match="no GPU"):
        as_tensor(Foreign(torch.ones(1), of_cuda))
