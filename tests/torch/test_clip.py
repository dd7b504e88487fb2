"""Clipping agrees with torch's, and takes sparse gradients."""

from __future__ import annotations

import pytest
import torch

import zenc


def parameters(sparse: bool) -> list[torch.nn.Parameter]:
    torch.manual_seed(3)
    table, layer = torch.nn.Embedding(20, 5, sparse=sparse), torch.nn.Linear(5, 2)
    ids = torch.tensor([3, 3, 7, 1, 3])
    (layer(table(ids)) ** 2).sum().backward()
    return [*table.parameters(), *layer.parameters(), torch.nn.Parameter(torch.zeros(2))]


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("most", [0.1, 1e6])
def test_as_torch_clips_dense_gradients(norm, most):
    ours, theirs = parameters(sparse=True), parameters(sparse=False)
    total = zenc.clip_grad_norm_(iter(ours), most, norm)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, norm)
    torch.testing.assert_close(total, expected)
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        torch.testing.assert_close(mine.grad.to_dense(), other.grad)


def test_nothing_to_clip():
    assert zenc.clip_grad_norm_(torch.nn.Parameter(torch.zeros(2)), 1.0) == 0
    empty = torch.nn.Parameter(torch.zeros(4, 2))
    empty.grad = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, 2), (4, 2))
    assert zenc.clip_grad_norm_([empty], 1.0, float("inf")) == 0


def test_a_norm_that_is_not_finite():
    broken = torch.nn.Parameter(torch.zeros(2))
    broken.grad = torch.tensor([1.0, float("nan")])
    with pytest.raises(zenc.TensorError, match="nonfinite-norm"):
        zenc.clip_grad_norm_(broken, 1.0, error_if_nonfinite=True)
