"""Loops of kernels in the instructions of a GPU, as ``nvdisasm`` of the wheel nvidia-cuda-nvdisasm prints them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

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
