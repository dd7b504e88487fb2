"""Bad input around GPUs is an error of its rank, says what to do, and leaves nobody waiting."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import zenc
from tests.emulator.libraries import INT64, Libraries
from tests.emulator.ranks import SUM, Rank, on_communicator
from tests.support.cases import same_bits, sparse_tensor
from tests.support.drivers import NCCL, compiled, driver
from tests.support.emulated_gpu import EmulatedGpu, emulated_ranks, futures_of_ranks
from tests.support.local import collectives, run_all
from tests.support.ranks import Ranks
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import Cubin
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu import device
from zenc.runtime.gpu import driver as driver_module
from zenc.runtime.gpu.driver import Driver, GpuInfo, find_nccl
from zenc.runtime.load import Backends
from zenc.wire.constants import MOST_OWNED_ELEMENTS

CUDA = [torch.device("cuda", index) for index in range(2)]


def said(error: BaseException) -> tuple[str, str]:
    """Return the id and the message of an error, which has help too."""
    assert isinstance(error, zenc.ZencError)
    (diagnostic,) = error.diagnostics
    assert diagnostic.help
    return diagnostic.id, diagnostic.message


def no_driver(_: Path) -> None:
    Driver("libcuda_of_nobody.so.1")


def old_driver(folder: Path) -> None:
    Driver(driver(folder, version=11080))


def no_nccl(_: Path) -> None:
    find_nccl()


def old_nccl(folder: Path) -> None:
    driver_module.candidates = lambda _name: iter([Path(compiled(folder, "libnccl.so.2", NCCL, VERSION=22705))])
    find_nccl()


def other_architecture(folder: Path) -> None:
    hopper, ampere = Cubin(Arch(9, 0), b"", "NVRTC", 13), GpuInfo(0, "NVIDIA Test", Arch(8, 0))
    device.kernels_for(ampere, Driver(driver(folder)), {"kernels.cu": ""}, [hopper])


@pytest.fixture(scope="module")
def artifact() -> zenc.Artifact:
    """An artifact compiled in advance, so that a slow test shows a wait."""
    made = zenc.compile("balanced", ranks=2)
    emulated_ranks(made, 2)
    return made


@pytest.fixture
def bare(monkeypatch):
    """A machine without NCCL and without a compiler for kernels."""
    monkeypatch.setattr(driver_module, "NCCL", "libnccl_of_nobody.so.2")
    monkeypatch.setattr(driver_module, "_is_loaded", lambda _name: False)
    monkeypatch.setattr(driver_module, "candidates", lambda _name: iter(()))
    monkeypatch.setattr(device, "find_compiler", lambda _cuda: (None, ("there is no NVRTC",)))


@pytest.mark.parametrize(
    ("lacking", "id", "message"),
    [
        (no_driver, "cuda-unavailable", "there is no CUDA driver"),
        (old_driver, "cuda-unavailable", "is of CUDA 11.8; zenc needs 12.0"),
        (no_nccl, "cuda-unavailable", "there is no NCCL"),
        (old_nccl, "cuda-unavailable", "is NCCL 2.27.5; zenc needs 2.28.0"),
        (other_architecture, "wrong-arch", "there are no kernels for NVIDIA Test, which is sm_80"),
    ],
)
@pytest.mark.usefixtures("bare")
def test_a_rank_that_lacks_something_is_named_by_all(lacking, id, message, artifact, monkeypatch, tmp_path):
    whole: Callable[..., tuple[str, str | None]] = EmulatedGpu.libraries

    def libraries(self: EmulatedGpu, size: int) -> tuple[str, str | None]:
        if self.ordinal == 1:
            lacking(tmp_path)
        return whole(self, size)

    monkeypatch.setattr(EmulatedGpu, "libraries", libraries)
    first, second = (ended(rank) for rank in futures_of_ranks(artifact, 2, deadline=600))
    assert said(second)[0] == id and message in said(second)[1]
    assert said(first) == ("peer-failed", "rank 1 could not load its scheme")
    assert message in first.diagnostics[0].notes[0]


def ended(rank: Future) -> BaseException:
    error = rank.exception(60)
    assert error is not None
    return error


def test_a_tensor_on_another_gpu():
    """A tensor on another GPU than the first is refused before a byte moves; the first GPU and the CPU go on."""
    backends = Backends(None, lambda _, device, *rest: f"backend on {device}", SimpleNamespace(rank=1), 3.0)
    assert backends.on(CUDA[0]) == "backend on cuda:0"
    with pytest.raises(zenc.TensorError) as raised:
        backends.on(CUDA[1])
    assert said(raised.value) == ("other-gpu", "the tensor is on cuda:1, and this collective sums on cuda:0")
    assert backends.on(CUDA[0]) == "backend on cuda:0" and backends.on(torch.device("cpu")) == "backend on cpu"


def test_owners_of_many_single_elements():
    """Elements get owners one group at a time; rows of as many values are few, and other schemes choose none."""
    elements, rows = torch.empty(MOST_OWNED_ELEMENTS + 1), torch.empty(2, MOST_OWNED_ELEMENTS)
    (holders, _), (balanced, _) = (emulated_ranks(zenc.compile(name, ranks=2), 2) for name in ("holders", "balanced"))
    with pytest.raises(zenc.TensorError) as caught:
        holders.collective.all_reduce(elements)
    assert said(caught.value)[0] == "tensor-too-large" and "1,048,577 single elements" in said(caught.value)[1]
    assert holders.collective.prepared(rows, "sum", True).layout.width == MOST_OWNED_ELEMENTS
    assert balanced.collective.prepared(elements, "sum", False).layout.width == 1


def test_a_tensor_on_a_device_of_another_kind():
    (rank,) = emulated_ranks(zenc.compile("balanced", ranks=1), 1)
    with pytest.raises(zenc.TensorError) as raised:
        rank.collective.all_reduce(torch.ones(4, device="meta"))
    assert said(raised.value)[0] == "unsupported-device"
    assert rank.collective.all_reduce(torch.ones(4)).tolist() == [1] * 4


def test_two_collectives_at_once_keep_apart():
    """Two models with a hook each have separate schemes, streams and groups, and calls in turn."""
    names = ("balanced", "dense_ring")
    artifacts = [zenc.compile(name, ranks=2) for name in names]
    pairs = [emulated_ranks(artifact, 2) for artifact in artifacts]
    for turn in range(3):
        inputs = [
            [sparse_tensor("random", rank, 2, 70, 3, torch.float32, turn + of) for rank in range(2)] for of in (0, 5)
        ]
        works = [
            [rank.collective.all_reduce(tensor, async_op=True) for rank, tensor in zip(ranks, tensors, strict=True)]
            for ranks, tensors in zip(pairs, inputs, strict=True)
        ]
        for artifact, under_way, tensors in zip(artifacts, works, inputs, strict=True):
            assert same_bits([*run_all(collectives(artifact, 2), tensors), *(work.wait() for work in under_way)])


def test_a_process_that_was_forked_after_loading():
    """The child gets an error at once; the parent goes on."""
    with Ranks(2) as ranks:
        found = ranks.run("tests.runtime.jobs:forks_after_loading")
    assert found == [("error[forked]", [3.0] * 3)] * 2


OWN = np.arange(5)
GRADIENTS = [torch.eye(6)[rank] for rank in range(2)]


@pytest.fixture
def libraries():
    made = Libraries()
    yield made
    made.limit_messages(0)


def side_by_side(libraries: Libraries, ours: list[Collective], theirs_first: set[int]) -> list[tuple[str, list[int]]]:
    """Return the outcomes of a call and of another communicator's all-reduce, by rank: each begins behind the other."""
    both_began = threading.Barrier(2)

    def meet(device: int) -> None:
        """Wait until one of the two is on the GPU, on both ranks; it stays there if it is not the same one."""
        while len(theirs_first) == 1 and not libraries.messages(device):
            time.sleep(0.001)
        both_began.wait(20)

    def body(rank: Rank) -> tuple[str, list[int]]:
        theirs, gradient = np.zeros_like(OWN), GRADIENTS[rank.number].clone()

        def begin_theirs() -> None:
            rank.all_reduce(OWN, theirs, INT64, SUM)

        if rank.number in theirs_first:
            begin_theirs()
            meet(rank.number)
        call = ours[rank.number].all_reduce(gradient, async_op=True)
        if rank.number not in theirs_first:
            meet(rank.number)
            begin_theirs()
        try:
            call.wait()
            outcome = str(gradient.int().tolist())
        except zenc.SynchronisationError as error:
            outcome = error.diagnostics[0].id
        assert rank.wait() == 0
        return outcome, theirs.tolist()

    found = on_communicator(libraries, 2, body)
    for problem in found:
        if isinstance(problem, Exception):
            raise problem
    return found


@pytest.mark.parametrize("places", [0, 2])
@pytest.mark.parametrize("theirs_first", [set(), {0}, {1}, {0, 1}], ids=str)
def test_two_communicators_in_any_order(libraries, places, theirs_first):
    """Each rank may begin with either communicator, as long as there is room for both."""
    ranks = [rank.collective for rank in emulated_ranks(zenc.compile("balanced", ranks=2), 2)]
    libraries.limit_messages(places)
    for outcome, theirs in side_by_side(libraries, ranks, theirs_first):
        assert outcome == "[1, 1, 0, 0, 0, 0]" and theirs == (2 * OWN).tolist()


def test_without_room_for_both_the_deadline_ends_the_call(libraries):
    """Each rank's first communicator waits for the other rank's second; the call gives way, and the other goes on."""
    ranks = [rank.collective for rank in emulated_ranks(zenc.compile("balanced", ranks=2), 2, deadline=2)]
    libraries.limit_messages(1)
    outcomes, theirs = zip(*side_by_side(libraries, ranks, {0}), strict=True)
    assert "deadline" in outcomes and set(outcomes) <= {"deadline", "peer-lost"}
    assert theirs == ((2 * OWN).tolist(),) * 2
