"""Inputs that Hypothesis draws for calls of any scheme: gradients of all ranks, formats, units and operations."""

import torch
from hypothesis import strategies as st

from tests.support.cases import DTYPES, FORMATS, KINDS, dense_tensor, sparse_tensor

FORMAT = st.sampled_from(FORMATS)
UNIT = st.sampled_from(["auto", "row", "element"])
OP = st.sampled_from(["sum", "mean"])
WIDTH = st.integers(0, 70)
DENSE, SPARSE = st.booleans(), st.just(False)
"""Dense tensors or sparse ones, and sparse ones alone."""


@st.composite
def gradients(
    draw: st.DrawFn,
    size: int,
    units: int = 400,
    width: st.SearchStrategy[int] = WIDTH,
    dense: st.SearchStrategy[bool] = DENSE,
) -> list[torch.Tensor]:
    """Draw a gradient of at most ``units`` units for each rank, of one shape and dtype and of any kinds."""
    case = draw(st.integers(1, units)), draw(width), draw(st.sampled_from(DTYPES)), draw(st.integers(0, 1000))
    make = dense_tensor if draw(dense) else sparse_tensor
    return [make(draw(st.sampled_from(KINDS)), rank, size, *case) for rank in range(size)]
