"""The machine of kernels and call sequences in a test: an emulated one, or the GPU of this one.

``pytest -m gpu`` runs on the first GPU. With ZENC_TEST_GPU=emulated it runs on a GPU of the emulator, which shows that
the tests themselves are right.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.emulator.build import compiled, engine, kernels
from zenc.codegen.render import headers, include_dirs
from zenc.runtime.gpu.device import kernels_for
from zenc.runtime.gpu.driver import Driver, Nccl, driver, find_nccl

STAND_IN = Path(__file__).with_name("nccl.cpp"), Path(__file__).with_name("all_reduce.h")
WARNINGS = ("-Wall", "-Wextra", "-Wformat-security", "-Werror")
FLAGS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", *WARNINGS)
MULTI_RANK = "NCCL_MULTI_RANK_GPU_ENABLE"
OLDEST_MULTI_RANK = 23003
"""Oldest NCCL under which several ranks may share a GPU: 2.30.3, as NCCL writes it."""


@dataclass(frozen=True)
class Machine:
    """Paths of CUDA's driver and of NCCL, and ``image``: rendered sources as the driver loads them.

    Ranks have devices of their own, or all share device 0.
    """

    cuda: str
    nccl: str
    image: Callable[[Mapping[str, str]], bytes]
    shared: bool

    def device(self, rank: int) -> int:
        return 0 if self.shared else rank


@cache
def emulator() -> Machine:
    """Return a machine of a device for each rank, and the emulator's NCCL."""
    return Machine(str(engine()), str(engine()), _emulated_image, shared=False)


@cache
def emulated_gpu() -> Machine:
    """Return a machine of one emulated device for all ranks, and the NCCL of ``nccl.cpp``."""
    return Machine(str(engine()), stand_in(str(engine())), _emulated_image, shared=True)


@cache
def real_gpu() -> Machine:
    """Return this machine's first GPU for all ranks, and the NCCL of ``nccl.cpp``, or raise BuildError."""
    started = driver()
    started.gpu(0)
    return Machine(started.path, stand_in(started.path), _image_of(started), shared=True)


@cache
def real_gpu_and_nccl() -> Machine:
    """Return the first GPU for all ranks, and real NCCL. Raise BuildError where either is missing."""
    return Machine(driver().path, find_nccl().path, _image_of(driver()), shared=True)


def gpu() -> Machine:
    """Return the machine of tests marked ``gpu``. Raise BuildError where there is no GPU."""
    return emulated_gpu() if is_emulated() else real_gpu()


def is_emulated() -> bool:
    return os.environ.get("ZENC_TEST_GPU") == "emulated"


def lacks_several_ranks(nccl: Nccl) -> str:
    """Return why several ranks can't share a GPU under this NCCL; "" if they can."""
    if nccl.version < OLDEST_MULTI_RANK:
        return f"NCCL {nccl.version} is older than {OLDEST_MULTI_RANK}: a GPU takes one rank"
    return "" if os.environ.get(MULTI_RANK) == "1" else f"{MULTI_RANK}=1 is not set: a GPU takes one rank"


def stand_in(cuda: str) -> str:
    """Build an NCCL whose ranks are threads that share a device of the driver at ``cuda``; return its path."""
    command = [*FLAGS, f'-DDRIVER="{cuda}"', *(f"-I{path}" for path in include_dirs("cuda")), str(STAND_IN[0])]
    return str(compiled(command, {**headers("cuda"), **{path.name: path.read_text("utf-8") for path in STAND_IN}}))


def _emulated_image(sources: Mapping[str, str]) -> bytes:
    return bytes(kernels(sources)) + b"\0"


def _image_of(started: Driver) -> Callable[[Mapping[str, str]], bytes]:
    """Return a compiler of the one file of kernels in the sources to a cubin for the first GPU."""

    def image(sources: Mapping[str, str]) -> bytes:
        (text,) = (text for name, text in sources.items() if name.endswith(".cu"))
        return kernels_for(started.gpu(0), started, {"kernels.cu": text}).image

    return image
