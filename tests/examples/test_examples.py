"""The examples: a kernel on the emulator, the recommender under DDP, and the scheme for unequal machines."""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

import zenc
from examples.recommender.train import train
from tests.emulator.build import kernels
from tests.emulator.libraries import Libraries
from tests.support.local import collectives, run_all
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.placement import bound_on
from zenc.api import check
from zenc.codegen.build import gpu_kernels
from zenc.codegen.build.arch import Arch
from zenc.gradients.spec import DEFAULT_GRADIENT
from zenc.runtime.gpu.device import unit_with

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kernel" / "greatest.py"


class RawModule:
    """CuPy's RawModule on the emulator: its driver loads the file, and arrays are in the host's memory."""

    def __init__(self, *, path: str) -> None:
        self.libraries = Libraries()
        self.libraries.make_current(0)
        self.module = self.libraries.new("cuModuleLoadData", Path(path).read_bytes())

    def get_function(self, name: str) -> Any:
        function = self.libraries.new("cuModuleGetFunction", self.module, name.encode())

        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            words = [
                ctypes.c_int64(a.ctypes.data if isinstance(a, np.ndarray) and a.ndim else int(a)) for a in arguments
            ]
            pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
            sizes = [*grid, 1, 1][:3], [*block, 1, 1][:3]
            self.libraries.call("cuLaunchKernel", function, *sizes[0], *sizes[1], 0, 0, pointers, None)
            self.libraries.call("cuStreamSynchronize", 0)

        return launch


def test_one_kernel_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(compute_capability="90")
    cupy = SimpleNamespace(
        RawModule=RawModule, empty=np.empty, float32=np.float32, cuda=SimpleNamespace(Device=lambda: device)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)

    def chosen(sources: dict[str, str], *_: object) -> gpu_kernels.Cubin:
        path = kernels(unit_with("zenc_row_magnitudes_f32", sources)[0])
        return gpu_kernels.Cubin(Arch(9, 0), bytes(path) + b"\0", "the emulator", 13)

    monkeypatch.setattr(gpu_kernels, "_chosen", chosen)
    spec = importlib.util.spec_from_file_location("greatest", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    matrix = np.random.default_rng(0).standard_normal((77, 45), dtype=np.float32)
    assert np.array_equal(example.greatest_of_rows(matrix), abs(matrix).max(axis=1))


STEPS = 3


def trained(group: dist.ProcessGroup, folder: str) -> list[list[torch.Tensor]]:
    """Return the weights after some steps: at once, from a checkpoint in between, and by DDP's own way."""
    at_once = train(STEPS, "balanced", None)
    train(1, "balanced", Path(folder) / "model.pt")
    resumed = train(STEPS, "balanced", Path(folder) / "model.pt")
    with mock.patch.dict(os.environ, {"ZENC_ATTACH": "0"}):
        alone = train(STEPS, "balanced", None)
    return [[each.detach() for each in model.parameters()] for model in (at_once, resumed, alone)]


def test_a_run_goes_on_as_if_it_had_not_stopped(two, tmp_path):
    for at_once, resumed, alone in two.run(f"{__name__}:trained", folder=str(tmp_path)):
        for one, other, by_ddp in zip(at_once, resumed, alone, strict=True):
            assert torch.equal(one, other)
            torch.testing.assert_close(one, by_ddp, rtol=1e-4, atol=1e-5)


HERE = Path(__file__).resolve().parents[2] / "examples" / "unequal_machines"


def test_all_ranks_have_the_same_sum() -> None:
    ranks = collectives(zenc.compile(HERE / "three.zen", ranks=16), 16)
    generator = torch.Generator().manual_seed(0)
    inputs = []
    for _ in ranks:
        rows, values = torch.randint(0, 500, (1, 40), generator=generator), torch.randn(40, 3, generator=generator)
        inputs.append(torch.sparse_coo_tensor(rows, values, (500, 3), check_invariants=True))
    exact = sum(tensor.to_dense().double() for tensor in inputs)
    results = [result.to_dense() for result in run_all(ranks, inputs)]
    assert torch.allclose(results[0].double(), exact, atol=1e-5)
    assert all(torch.equal(result, results[0]) for result in results)


def test_the_cables_carry_hardly_more_than_they_must() -> None:
    topology = zenc.load_topology(HERE / "cluster.zen")
    assert [host.ranks for host in topology.hosts] == [tuple(range(6)), tuple(range(6, 12)), tuple(range(12, 16))]
    placement = check(HERE / "three.zen", topology=topology).placement
    assert placement is not None and placement.over is not None and placement.over.near
    loads, gradient = placement.loads, DEFAULT_GRADIENT
    plan = check(HERE / "three.zen", topology=topology).plan
    expected = expected_bytes(plan, 16, gradient)
    times = {}
    for link, ends in enumerate(loads.links):
        if ends.bandwidth == 25e9 / 8:
            over = bound_on(loads, link, expected)
            assert over is not None
            times[loads.name(link)] = over.bytes / over.least
    assert times == pytest.approx(
        {
            "nic(0, 0) -> nic(1, 0)": 1.0,  # the sum of six
            "nic(1, 0) -> nic(0, 0)": 1.03,  # sums of six and of four, for one of ten
            "nic(1, 0) -> nic(2, 0)": 1.0,  # the sum of twelve
            "nic(2, 0) -> nic(1, 0)": 2.0,  # the sum of four, to each box
        },
        abs=0.01,
    )


def test_tiers_do_not_fit() -> None:
    text = "scheme tiers { tier box(6): balanced tier row: balanced }"
    with pytest.raises(zenc.VerificationError, match="16 ranks are not whole groups of 6"):
        zenc.compile_text(text, ranks=16)
