"""CuPy on a GPU: its arrays are summed where they lie, and it launches one of zenc's kernels."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu_call import Clock, SharedRanks
from tests.gpu.machine import is_emulated, real_gpu

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kernel" / "greatest.py"
pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy():
    if is_emulated():
        pytest.skip("CuPy has no emulated GPU: ZENC_TEST_GPU is set")
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("scheme", ["balanced", "dense_ring"])
def test_arrays_are_summed_where_they_lie(cupy, scheme):
    random = np.random.default_rng(5)
    given = [np.where(random.random(30_011) < 0.1, random.standard_normal(30_011), 0).astype(np.float32) for _ in "ab"]
    arrays = [cupy.asarray(each) for each in given]
    addresses = [array.data.ptr for array in arrays]
    sums = SharedRanks(compile(scheme, ranks=2), 2, real_gpu().nccl, Clock()).sums(arrays)
    torch.cuda.synchronize()
    assert [found.data.ptr for found in sums] == addresses
    assert all(np.array_equal(cupy.asnumpy(found), given[0] + given[1]) for found in sums)


def test_the_example_finds_what_cupy_finds(cupy):
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0 and ran.stdout.rstrip().endswith(": equal"), ran.stderr[-3000:]
