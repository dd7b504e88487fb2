"""Collectives on emulated GPUs: sums, counts and errors are those of the CPU, bit for bit."""

import contextlib
import itertools
import threading
from types import SimpleNamespace

import pytest
import torch

import zenc
from tests.emulator.build import kernels
from tests.emulator.libraries import Libraries
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor
from tests.support.emulated_gpu import EmulatedGpu, EmulatedRank, alone, emulated_ranks, loaded_ranks, only_current
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.codegen.build.gpu_kernels import modules_of
from zenc.codegen.render import render
from zenc.errors import Diagnostic
from zenc.pipeline import backend
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu import device
from zenc.runtime.load import Backends

SCHEMES = ("balanced", "dense_ring", "zen", "holders")


def reduced(ranks: list[EmulatedRank], inputs: list[torch.Tensor], op: str = "sum") -> list[torch.Tensor]:
    return run_all([rank.collective for rank in ranks], [tensor.clone() for tensor in inputs], op)


@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("name", SCHEMES)
def test_sums_and_counts_are_those_of_the_cpu(name, size):
    artifact = zenc.compile(name, ranks=size)
    gpus, cpus = emulated_ranks(artifact, size), collectives(artifact, size)
    for turn, make in enumerate((sparse_tensor, dense_tensor)):
        for kind in KINDS:
            inputs = [make(kind, rank, size, 70, 3, torch.float32, turn) for rank in range(size)]
            expected = run_all(cpus, [tensor.clone() for tensor in inputs], "mean")
            assert same_bits([*expected, *reduced(gpus, inputs, "mean")])
            for gpu, cpu in zip(gpus, cpus, strict=True):
                mine, theirs = gpu.collective.stats, cpu.stats
                same = ("units", "units_in", "units_out", "density_in", "density_out", "call")
                assert [mine[key] for key in same] == [theirs[key] for key in same]
                assert set(mine["phases"]) == set(theirs["phases"])
                for phase in mine["phases"]:
                    assert mine["phases"][phase]["imbalance"] == theirs["phases"][phase]["imbalance"]
                    sent = {wire: size for wire, size in theirs["phases"][phase]["formats_sent"].items() if size}
                    assert mine["phases"][phase]["formats_sent"] == sent


def by_module(fetched: list[str], broken: str = ""):
    """Return an ``EmulatedGpu.images`` that compiles only the requested modules, and not the module ``broken``."""

    def images(_: EmulatedGpu, artifact: Artifact):
        text = render(type(artifact.plan.mapping), "cuda")["kernels.cu"]
        modules = modules_of({"kernels.cu": text})

        def image(kernel: str) -> bytes:
            fetched.append(modules[kernel])
            if fetched[-1] == broken:
                raise zenc.BuildError(Diagnostic("compile-failed", "the disk is full"))
            alone = f"#define ZENC_ONLY\n#define ZENC_{fetched[-1]} 1\n{text}"
            return bytes(kernels({"kernels.cu": alone})) + b"\0"

        return image

    return images


def test_modules_of_kernels_are_fetched_when_they_are_first_used(monkeypatch):
    fetched: list[str] = []
    monkeypatch.setattr(EmulatedGpu, "images", by_module(fetched))
    artifact = zenc.compile("balanced", ranks=2)
    inputs = [dense_tensor("random", rank, 2, 70, 1, torch.float32, 1) for rank in range(2)]
    ranks = emulated_ranks(artifact, 2)
    results = [*reduced(ranks, inputs), *reduced(ranks, inputs)]
    assert same_bits([*run_all(collectives(artifact, 2), inputs), *results])
    assert sorted(fetched) == sorted(2 * ["SEGMENTS", "PACK_32", "SUM_32", "EXPAND_32"])


def test_a_module_that_can_not_be_compiled_is_the_error_of_the_call(monkeypatch):
    monkeypatch.setattr(EmulatedGpu, "images", by_module([], "PACK_32"))
    (rank,) = emulated_ranks(zenc.compile("balanced", ranks=1), 1)
    with pytest.raises(zenc.BuildError, match="the disk is full"):
        reduced([rank], [torch.ones(70, 1)])


def test_groups_on_one_gpu_add_modules_one_at_a_time():
    """Two groups of a process have a thread each, and the same kernels."""
    both, met = threading.Barrier(2), []

    def add_kernels(*_: object) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            met.append(both.wait(0.2))

    library = SimpleNamespace(load_kernels=lambda *_: 0, add_kernels=add_kernels)
    kernels = device.LoadedKernels(library, str.encode, "zenc_gather", False)
    threads = [threading.Thread(target=kernels._fetch, args=(0, b"zenc_sum")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == []


def test_a_backend_is_made_on_the_device_of_its_tensors(monkeypatch):
    """No device is current here: kernels and events belong to the device of the tensors, and the backend is kept."""
    second, of_second = torch.device("cuda", 1), EmulatedGpu(1)
    monkeypatch.setattr(torch.cuda, "device", only_current)
    monkeypatch.setattr(device, "TorchGpu", {second: of_second}.__getitem__)
    Libraries().call("cuCtxSetCurrent", 0)
    artifact = zenc.compile("balanced", ranks=1)
    backends = Backends(artifact, backend, alone(), 60)
    made = backends.on(second)
    assert backends.on(second) is made
    with pytest.raises(zenc.TensorError, match="other-gpu"):
        backends.on(torch.device("cuda", 0))
    tensor = sparse_tensor("many_times", 0, 1, 70, 3, torch.float32, 1)
    with only_current(second):
        found = Collective(artifact, alone(), lambda _: made).all_reduce(tensor)
    assert same_bits([*run_all(collectives(artifact, 1), [tensor]), found])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", ["balanced", "holders"])
def test_views_that_begin_at_any_value_of_a_bucket(name, dtype):
    """Views of DDP's buckets begin at any value, so no kernel may need more than its alignment."""
    artifact = zenc.compile(name, ranks=2)
    ranks, hosts = emulated_ranks(artifact, 2), collectives(artifact, 2)
    for offset, width in itertools.product((1, 2, 3), (1, 2, 6, 64)):
        inputs = [dense_tensor("random", rank, 2, 40, width, dtype, offset) for rank in range(2)]
        expected = run_all(hosts, [tensor.clone() for tensor in inputs])
        buckets = [torch.full((offset + tensor.numel() + 1,), 7, dtype=dtype) for tensor in inputs]
        views = [bucket[offset:-1].view(40, width) for bucket in buckets]
        for view, tensor in zip(views, inputs, strict=True):
            view.copy_(tensor)
        assert same_bits([*expected, *run_all([rank.collective for rank in ranks], views)])
        for bucket in buckets:
            assert bucket[:offset].eq(7).all() and bucket[-1] == 7
        sparse = [
            torch.sparse_coo_tensor(torch.arange(40)[None], bucket[offset:-1].view(40, width), check_invariants=False)
            for bucket in buckets
        ]
        assert same_bits([*run_all(hosts, sparse), *reduced(ranks, sparse)])


def test_a_scheme_that_chooses_loads_its_candidates_between_calls():
    """Candidates are loaded one by one, within a call of all ranks; sums are those of any of them."""
    text = "scheme mine { choose(every = 3, patience = 1, trials = 2) from [balanced, dense_ring, sparcml] }"
    libraries = Libraries()
    libraries.fail_on("ncclCommInitRank@0:2=2,ncclCommInitRank@1:2=2")  # candidates share one communicator a GPU
    ranks = loaded_ranks(zenc.compile_text(text, ranks=2), 2)
    ran = []
    for call in range(7):
        inputs = [dense_tensor("random", rank, 2, 40, 3, torch.float64, call) for rank in range(2)]
        expected = inputs[0] + inputs[1]
        for result in run_all(ranks, inputs):
            assert torch.equal(result, expected)
        ran.append({rank.stats["choice"]["scheme"] for rank in ranks})
    assert all(len(schemes) == 1 for schemes in ran), "all ranks choose alike"
    assert len(set().union(*ran)) > 1, ran
    assert ranks[0].decisions
    libraries.fail_on("")


def test_what_other_communicators_find_beside_ours(monkeypatch, caplog):
    """Communicators of others find room on the GPU, and a message where kernels must be launched in one order."""
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    monkeypatch.setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0")
    with caplog.at_level("INFO", logger="zenc"):
        emulated_ranks(zenc.compile("balanced", ranks=2), 2)
    (said,) = [record.message for record in caplog.records if "in flight" in record.message]
    assert said.startswith("CUDA_DEVICE_MAX_CONNECTIONS=1: ")
    assert 0 < Libraries().library.emulator_max_blocks() <= 16


def test_communicators_of_nccl_end_with_the_group():
    ranks = emulated_ranks(zenc.compile("balanced", ranks=2), 2)
    inputs = [dense_tensor("random", rank, 2, 40, 3, torch.float64, 1) for rank in range(2)]
    reduced(ranks, inputs)
    for communicator in [rank.collective.communicator for rank in ranks]:
        (made,) = communicator.nccl
        for _ in range(2):
            communicator.close(10)
        assert made.handle == 0
    with pytest.raises(zenc.SynchronisationError, match="group-broken"):
        ranks[0].collective.all_reduce(inputs[0])


def test_a_dense_tensor_with_gaps_is_overwritten_in_place():
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2)
    wide = [torch.arange(24.0).reshape(4, 6) * (rank + 1) for rank in range(2)]
    views = [tensor[:, ::2] for tensor in wide]
    expected = views[0].clone() + views[1].clone()
    results = run_all([rank.collective for rank in ranks], views)
    for view, result in zip(views, results, strict=True):
        assert result is view and torch.equal(view, expected)


def test_a_call_that_goes_on_gives_a_future():
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2)
    inputs = [sparse_tensor("random", rank, 2, 70, 3, torch.float32, 1) for rank in range(2)]
    works = [rank.collective.all_reduce(tensor, async_op=True) for rank, tensor in zip(ranks, inputs, strict=True)]
    futures = [work.get_future() for work in works]
    assert same_bits([*run_all(collectives(artifact, 2), inputs), *(future.wait() for future in futures)])


def test_no_memory_is_an_error_of_the_rank_that_has_none():
    artifact = zenc.compile("balanced", ranks=1)
    rank = emulated_ranks(artifact, 1)[0]
    tensor = sparse_tensor("random", 0, 1, 70, 3, torch.float32, 1)
    rank.gpu.left = 1
    with pytest.raises(zenc.TensorError, match=r"error\[out-of-memory\]"):
        rank.collective.all_reduce(tensor)
    rank.gpu.left = None
    assert torch.equal(rank.collective.all_reduce(tensor).to_dense(), tensor.to_dense()), "its state is whole"


def test_ranks_in_different_calls_are_told():
    artifact = zenc.compile("balanced", ranks=2)
    ranks = emulated_ranks(artifact, 2, deadline=20)
    with pytest.raises(zenc.SynchronisationError, match=r"error\[different-calls\]"):
        reduced(ranks, [torch.ones(4, 3), torch.ones(5, 3)])
    with pytest.raises(zenc.SynchronisationError, match=r"error\[group-broken\]"):
        ranks[0].collective.all_reduce(torch.ones(4, 3))
