"""Codes on GPUs, emulated: the bytes, what they mean and what is lost are the CPU's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.device import Device
from tests.support.nvrtc import compiled_by
from tests.support.ptx import usages
from tests.targets.conftest import Dtype
from tests.targets.cpu.test_compress import BLOCK_CODES, Drawn
from zenc.codegen.build.nvrtc import Nvrtc
from zenc.codegen.render import COMPRESSION, compression_unit
from zenc.runtime.compression.kernels import compression_kernels
from zenc.runtime.compression.parameters import code_parameters
from zenc.scheme.compression import Code, Rounded
from zenc.wire.codes import encoded_bytes

SOURCE = compression_unit()[COMPRESSION]
DTYPES = {"f32": Dtype("f32", np.float32), "f16": Dtype("f16", np.float16), "bf16": Dtype("bf16", np.uint16)}


@pytest.fixture(scope="module")
def coder(opened) -> Device:
    return opened({"kernels.cu": SOURCE})


@pytest.mark.parametrize("code", BLOCK_CODES, ids=repr)
@pytest.mark.parametrize(
    ("n", "dtype", "kind"), [(3000, "f32", "special"), (1024, "f16", "normal"), (161, "bf16", "ties")]
)
def test_codes_are_those_of_the_cpu(coder: Device, code: Code, n: int, dtype: str, kind: str) -> None:
    stored, size = DTYPES[dtype].narrow(Drawn.of(n, n, kind)), encoded_bytes(code, n)
    known, out = np.zeros(size + 8, np.uint8), np.zeros(size + 8, np.uint8)
    decoded, loss = stored.copy(), np.ones(n, np.float32)
    addresses = [array.ctypes.data for array in (decoded, known, decoded, loss)]
    compression_kernels().encode(code, dtype, n, *addresses, key=7)
    number, levels, bits, block = code_parameters(code)
    mine, lost, back = stored.copy(), np.ones(n, np.float32), np.zeros_like(stored)
    if not isinstance(code, Rounded):
        coder.launch(f"zenc_scale_code_{dtype}", (2, 1), [number, levels, block, mine, n, out])
    coder.launch(f"zenc_encode_{dtype}", (2, 1), [number, levels, bits, block, 7, mine, n, out, mine, lost])
    assert out.tobytes() == known.tobytes()
    assert mine.tobytes() == decoded.tobytes() and np.array_equal(lost, loss, equal_nan=True)
    coder.launch(f"zenc_decode_{dtype}", (3, 1), [number, levels, bits, block, out, n, back])
    assert back.tobytes() == decoded.tobytes()


@pytest.mark.parametrize("arch", ["sm_75", pytest.param("sm_90", marks=pytest.mark.slow)])
def test_kernels_compile_and_spill_nothing(nvrtc: Nvrtc, arch: str) -> None:
    told = compiled_by(nvrtc.path, SOURCE, arch)
    found = {usage.name: usage for usage in usages(told.log)}
    assert set(found) == {f"zenc_{kernel}_{dtype}" for kernel in ("scale_code", "encode", "decode") for dtype in DTYPES}
    assert all(usage.spilled == 0 and usage.registers <= 128 for usage in found.values())
