"""Arrays of other libraries in ``all_reduce``: summed in their own memory, by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import zenc
from tests.support.local import collectives, run_all
from zenc.errors import TensorError
from zenc.runtime.call.layout import as_tensor


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
    for given, found in zip(arrays, results, strict=True):
        assert found is given and np.array_equal(given, expected)


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
