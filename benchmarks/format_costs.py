"""Costs of an index in each format on a CPU, to be written and read: the figures of ``zenc.wire.formats.CPU_COSTS``.

    python -m benchmarks.format_costs [--slots 4194304] [--rounds 40]

A row is a density: nanoseconds of both ends together for each word of the bitmap, the least of all rounds in the CPU
time of this thread. Below are the picoseconds that fit best by relative errors: of a word of a bitmap that travels
(``bitmap``), of one that is listed (``search``), and of a slot that ``coo`` or ``elias_fano`` list.
"""

import time

import numpy as np

from benchmarks.pages import RIGHT, new_parser, table
from zenc.codegen.render import render
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Contiguous, Format
from zenc.wire.formats import FormatCosts, index_bytes

FORMATS = (Format.COO, Format.BITMAP, Format.ELIAS_FANO)
DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--slots", type=int, default=1 << 22)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    kernels = load(render(Contiguous), Contiguous())
    found = np.array([measured(kernels, options.slots, density, options.rounds) for density in DENSITIES])
    shown = zip(DENSITIES, found / 1000, strict=True)
    rows = [[f"{density:.1%}", *(f"{each:.2f}" for each in row)] for density, row in shown]
    print(table(["density", *(format.value for format in FORMATS)], [RIGHT] * 4, rows))
    print(fitted(found))


def measured(kernels: Kernels, slots: int, density: float, rounds: int) -> list[float]:
    """Return picoseconds a word of the bitmap in each of FORMATS."""
    held, words = round(slots * density), -(-slots // 64)
    flags = np.zeros(words * 64, dtype=np.bool_)
    flags[np.random.default_rng(1).choice(slots, held, replace=False)] = True
    bitmap = np.packbits(flags, bitorder="little").view(np.uint64)
    read = np.zeros_like(bitmap)

    def seconds(format: Format, index: int) -> float:
        started = time.thread_time()
        kernels.encode_index(format, bitmap.ctypes.data, slots, held, index)
        kernels.decode_index(format, index, slots, held, read.ctypes.data)
        return time.thread_time() - started

    found = []
    for format in FORMATS:
        index = np.zeros(index_bytes(format, slots, held) // 8 + 8, dtype=np.uint64)
        found.append(1e12 * min(seconds(format, index.ctypes.data) for _ in range(rounds)) / words)
        assert np.array_equal(read, bitmap)
    return found


def fitted(found: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> FormatCosts:
    """Return the costs that fit ``found`` [DENSITIES, FORMATS] best; the lists share what a word takes."""
    coo, bitmap, elias_fano = found.T
    listed, one, none = 64 * np.array(DENSITIES), np.ones(len(DENSITIES)), np.zeros(len(DENSITIES))
    terms = np.concatenate([np.stack([one, listed, none], 1), np.stack([one, none, listed], 1)])
    took = np.concatenate([coo, elias_fano])
    search, *each = np.linalg.lstsq(terms / took[:, None], np.ones(len(took)), rcond=None)[0]
    return FormatCosts(0, *(round(float(cost)) for cost in (np.median(bitmap), search, *each)))


if __name__ == "__main__":
    main()
