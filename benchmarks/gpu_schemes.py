"""Benchmark of every scheme on one GPU that ranks share: right sums, milliseconds, and what each kernel takes.

    python -m benchmarks.gpu_schemes [--json FILE] [--schemes NAME ...] [--ranks 2] [--sizes 20011 4000000 50000000]

Ranks are threads; messages are copies within the GPU, by the NCCL of ``tests/gpu/nccl.cpp``. Calls go through
``Collective.all_reduce(name=...)``, so that selection, codes and feedback are part of them. Lossy schemes sum dense
values of N(0, 1), the others values of which 5.2 % are not 0. ``reads`` is the time of a call of all ranks, over their
number, over a read of one rank's tensor (half a copy) in the same run. All ranks must get the same bits, and from a
scheme that loses nothing the sum in float64, as near as float32 is. Without a GPU it prints "not measured".
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.gpu_call import MS, Clock, Kernel, SharedRanks, dense_gradients
from benchmarks.pages import new_parser, rounded, save_json
from tests.gpu.machine import Machine, real_gpu
from tests.support.shipped import ALL, LOSSY, cases
from zenc.api import compile
from zenc.errors import BuildError, ZencError
from zenc.runtime.gpu.driver import driver

SIZES = (20_011, 4_000_000, 50_000_000)
NEAR = 1e-5
"""The most that a float32 sum may differ from that in float64, of the sum of magnitudes."""


@dataclass(frozen=True, slots=True)
class SchemeRun:
    """Calls of one scheme on tensors of one size: ``wrong`` is empty where all sums were right."""

    scheme: str
    units: int
    ranks: int
    wrong: str
    call: float = 0.0
    """Milliseconds of a call of all ranks, the median."""
    read: float = 0.0
    reads: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    """The kernels of one call of all ranks."""


def run_scheme(scheme: str, size: int, units: int, machine: Machine, clock: Clock, repeat: int) -> SchemeRun:
    """Sum tensors of ``units`` float32 by ``scheme`` among ``size`` ranks: check, time, and profile one call."""
    try:
        ranks = SharedRanks(compile(scheme, ranks=size), size, machine.nccl, clock)
        gradients = _gradients(scheme, size, units, clock.device)
        sums = ranks.sums([gradient.clone() for gradient in gradients])
        if wrong := _wrong(scheme, gradients, sums):
            return SchemeRun(scheme, units, size, wrong)
        del sums
        took = [timed(ranks, gradients) for _ in range(repeat)]
        copies = [gradient.clone() for gradient in gradients]
        kernels = clock.kernels(lambda: ranks.sums(copies))
    except (ZencError, RuntimeError) as error:
        return SchemeRun(scheme, units, size, f"{type(error).__name__}: {error}"[:400])
    read, call = clock.median(gradients[0].clone, repeat) / 2, statistics.median(took)
    return SchemeRun(scheme, units, size, "", call, read, call / size / read, kernels)


def timed(ranks: SharedRanks, gradients: Sequence[torch.Tensor]) -> float:
    copies = [gradient.clone() for gradient in gradients]
    ranks.clock.wait()
    started = time.perf_counter()
    ranks.sums(copies)
    return MS * (time.perf_counter() - started)


def _gradients(scheme: str, size: int, units: int, device: torch.device) -> list[torch.Tensor]:
    if scheme not in LOSSY:
        return dense_gradients(device, size, units)
    generator = torch.Generator(device).manual_seed(3)
    return [torch.randn(units, generator=generator, device=device) for _ in range(size)]


def _wrong(scheme: str, gradients: Sequence[torch.Tensor], sums: Sequence[torch.Tensor]) -> str:
    if not all(torch.equal(sums[0].view(torch.int32), other.view(torch.int32)) for other in sums[1:]):
        return "ranks have other bits"
    if not bool(torch.isfinite(sums[0]).all()):
        return "not finite"
    if scheme in LOSSY:
        return ""
    exact, magnitude = (sum(of(gradient.double()) for gradient in gradients) for of in (torch.clone, torch.abs))
    assert isinstance(exact, torch.Tensor) and isinstance(magnitude, torch.Tensor)
    return "" if bool(((sums[0].double() - exact).abs() <= NEAR * magnitude).all()) else "another sum"


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file", metavar="FILE")
    parser.add_argument("--schemes", nargs="+", default=ALL, metavar="NAME", help="all shipped ones, unless given")
    parser.add_argument("--ranks", type=int, default=2, help="ranks that share the GPU")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="UNITS", help="float32 values")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median counts")
    given = parser.parse_args()
    try:
        machine = real_gpu()
    except BuildError:
        print("not measured")
        return 0
    name = f"{driver().gpu(0).name}, CUDA {driver().cuda}, torch {torch.__version__}"
    found: list[SchemeRun] = []
    for scheme, size in cases([given.ranks], given.schemes):
        for units in given.sizes:
            found.append(run_scheme(scheme, size, units, machine, Clock(), given.repeat))
            took = found[-1].wrong or f"{found[-1].call:.3f} ms, {found[-1].reads:.1f} reads"
            print(f"{scheme} x {size}, {units:,}: {took}", flush=True)
            save_json(given.json, rounded({"machine": name, "measured": [asdict(each) for each in found]}))
    return sum(bool(each.wrong) for each in found)


if __name__ == "__main__":
    sys.exit(main())
