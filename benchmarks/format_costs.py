"""What an index of each format costs a CPU, to be written and read: the figures of ``zenc.wire.format_costs``.

    python -m benchmarks.format_costs [--slots 1048576] [--rounds 40]

A row is a density: picoseconds of this thread, both ends together, for each word of a bitmap, and for each slot that
``coo`` and ``elias_fano`` list. Their least over the rounds, each on slots drawn at random.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.markdown import RIGHT, table
from zenc.codegen.render import UnitInputs, render
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Format
from zenc.wire.formats import entries, index_bytes

FORMATS = (Format.COO, Format.BITMAP, Format.ELIAS_FANO)
DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    kernels = load(render(UnitInputs("contiguous")))
    rows = [
        [f"{density:.1%}", *(f"{each:,.0f}" for each in measured(kernels, options.slots, density, options.rounds))]
        for density in DENSITIES
    ]
    print(table(["density", *(format.value for format in FORMATS)], [RIGHT] * 4, rows))


def measured(kernels: Kernels, slots: int, density: float, rounds: int) -> list[float]:
    """Return picoseconds an entry of each of FORMATS."""
    held = round(slots * density)
    flags = np.zeros(-(-slots // 64) * 64, dtype=np.bool_)
    flags[np.random.default_rng(1).choice(slots, held, replace=False)] = True
    bitmap = np.packbits(flags, bitorder="little").view(np.uint64)
    read = np.zeros_like(bitmap)
    found = []
    for format in FORMATS:
        index = np.zeros(index_bytes(format, slots, held) // 8 + 8, dtype=np.uint64)

        def both(format: Format = format, at: int = index.ctypes.data) -> None:
            kernels.encode_index(format, bitmap.ctypes.data, slots, held, at)
            kernels.decode_index(format, at, slots, held, read.ctypes.data)

        found.append(1e12 * min(_seconds(both) for _ in range(rounds)) / entries(format, slots, held))
    return found


def _seconds(work: object) -> float:
    started = time.thread_time()
    work()  # type: ignore[operator]
    return time.thread_time() - started


if __name__ == "__main__":
    main()
