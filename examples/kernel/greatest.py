"""One of zenc's kernels alone, launched by CuPy: the greatest magnitude of each row of a matrix.

    python examples/kernel/greatest.py          # needs a GPU, and pip install 'zenc[cuda13]'

All kernels and their arguments: docs/reference/kernels.md.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

import zenc

THREADS = 256
"""Of a block: kernels of zenc are compiled for so many."""
WARP = 32


def greatest_of_rows(matrix: Any) -> Any:
    """The greatest magnitude of each row of ``matrix``, a float32 array of CuPy, [rows, width] -> [rows]."""
    rows, width = matrix.shape
    kernel = zenc.compile("topk_a2a", target="plan").raw_module().get_function("zenc_row_magnitudes_f32")
    out = cupy.empty(rows, dtype=cupy.float32)
    blocks = -(-rows * WARP // THREADS)  # a warp a row; with fewer blocks each warp would take several
    kernel((blocks,), (THREADS,), (matrix, np.int64(rows), np.int64(width), out))
    return out


def main() -> None:
    """Show the kernel's result beside CuPy's own."""
    matrix = cupy.random.standard_normal((1000, 300), dtype=cupy.float32)
    found, expected = greatest_of_rows(matrix), abs(matrix).max(axis=1)
    print(f"{found[:4]}, and by CuPy {expected[:4]}: {'equal' if bool((found == expected).all()) else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
