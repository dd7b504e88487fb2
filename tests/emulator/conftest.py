"""The emulator's libraries, and ranks that call them."""

from collections.abc import Iterator

import pytest

from tests.emulator.build import HERE, kernels
from tests.emulator.graphs import Graphs, graphs_on
from tests.emulator.libraries import Libraries
from tests.gpu.machine import emulator, gpu


@pytest.fixture
def libraries() -> Iterator[Libraries]:
    """The libraries, with device 0 current for this thread."""
    made = Libraries()
    made.make_current(0)
    yield made
    made.fail_on("")
    made.limit_messages(0)
    made.error()


@pytest.fixture
def stream(libraries) -> Iterator[int]:
    made = libraries.new("cuStreamCreate", 0)
    yield made
    libraries.call("cuStreamDestroy_v2", made)


@pytest.fixture
def image() -> bytes:
    """The kernels of all samples."""
    sources = {name: (HERE / "samples" / name).read_text("utf-8") for name in ("correct.cu", "planted.cu")}
    return str(kernels(sources)).encode()


@pytest.fixture
def module(libraries, image) -> Iterator[int]:
    made = libraries.new("cuModuleLoadData", image)
    yield made
    libraries.error()
    libraries.call("cuModuleUnload", made)


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu)])
def graphs(request) -> Iterator[Graphs]:
    """Graphs on the emulator, and on a GPU."""
    with graphs_on(emulator() if request.param == "emulated" else gpu()) as made:
        yield made


@pytest.fixture
def emulated_graphs() -> Iterator[Graphs]:
    """Graphs on the emulator, for what a GPU does not promise, or does not survive."""
    with graphs_on(emulator()) as made:
        yield made
