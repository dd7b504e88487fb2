"""Warp instructions of the main loops of dense calls, in what NVRTC makes for sm_90: bars that need no GPU.

An H100 issues 24 warp instructions for 32 float32 while it reads these twice, so more than that is slower than memory.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from tests.support.ptx import usages
from zenc.codegen.build.gpu_kernels import FLAGS, device_headers
from zenc.codegen.build.nvrtc import Nvrtc
from zenc.codegen.render import render
from zenc.scheme.model import Holders, Permutation

_KERNEL = re.compile(r"\s*\.text\.(\S+):")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)(.*?);")


def nvdisasm() -> Path | None:
    """Return the disassembler, or None where its wheel is not installed."""
    try:
        found = files("nvidia-cuda-nvdisasm") or []
    except PackageNotFoundError:
        return None
    return next((Path(str(each.locate())) for each in found if each.name == "nvdisasm"), None)


def loops(disassembler: Path, cubin: Path, kernel: str) -> list[Counter[str]]:
    """Count each operation in each loop of ``kernel``, the shortest loop first."""
    text = subprocess.run([disassembler, "-c", cubin], capture_output=True, text=True, check=True).stdout
    code: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    inside = False
    for line in text.splitlines():
        if found := _KERNEL.match(line):
            inside = found[1] == kernel
        elif inside and (found := _LABEL.match(line)):
            labels[found[1]] = len(code)
        elif inside and (found := _INSTRUCTION.search(line)):
            code.append((found[1].partition(".")[0], found[2]))
    back = {
        (labels[to], end + 1)
        for end, (operation, rest) in enumerate(code)
        if operation == "BRA" and (to := "".join(re.findall(r"\.L_x_\d+", rest)[:1])) and labels.get(to, end + 1) <= end
    }
    counted = [Counter(operation for operation, _ in code[first:end]) for first, end in back]
    return sorted(counted, key=lambda loop: loop.total())


def shortest_with(found: list[Counter[str]], least: Mapping[str, int]) -> int:
    """Return the instructions of the shortest loop that has the given number of each operation."""
    return next(loop.total() for loop in found if all(loop[name] >= n for name, n in least.items()))


MOST_REGISTERS = 64
"""Registers of a thread, so that four blocks of 256 threads have room on a multiprocessor."""
MOST_OF_TWO = 128
FULLEST_OF_32, FULLEST_OF_64 = 4.6, 7.5
"""Set bits of the fullest of 32 lanes that have 32 or 64 slots each, on average, where 5.2 % are set."""
KERNELS = {
    "pack_values_32": ("PACK_32", {"VOTE": 32, "LDG": 8}, 1024, 18),
    "expand_values_32": ("EXPAND_32", {"LD": 16, "STG": 4, "SHFL": 8}, 512, 14),
    "sum_values_32": ("SUM_32", {"FADD": 1, "LDS": 2, "STS": 1}, 1024 / FULLEST_OF_32, 8),
    "encode_index": ("SEGMENTS", {"ATOMS": 3}, 2048 / FULLEST_OF_64, 9),
    "choose_owners": ("HOLDERS", {"ATOMS": 1, "LDS": 8}, 256, 38),
    "mark_listed": ("SEGMENTS", {"REDG": 2, "FLO": 1, "LD": 2}, 530, 9),
}
"""Module of each kernel, properties of its main loop, slots of a round for a warp, and instructions for 32 of them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_main_loops_have_few_instructions(nvrtc: Nvrtc, tmp_path: Path, name: str) -> None:
    disassembler = nvdisasm()
    if disassembler is None:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")
    module, least, slots, bar = KERNELS[name]
    flags = ("-arch=sm_90", *FLAGS, "-DZENC_ONLY", f"-DZENC_{module}", "--ptxas-options=-v")
    mapping = Holders if module == "HOLDERS" else Permutation
    made = nvrtc.compile(render(mapping, "cuda")["kernels.cu"], device_headers(), flags)
    cubin = tmp_path / "module.cubin"
    cubin.write_bytes(made.cubin)
    usage = next(each for each in usages(made.log) if each.name == f"zenc_{name}")
    assert usage.spilled == 0 and usage.registers <= (MOST_OF_TWO if module == "HOLDERS" else MOST_REGISTERS)
    assert 32 * shortest_with(loops(disassembler, cubin, f"zenc_{name}"), least) / slots <= bar
