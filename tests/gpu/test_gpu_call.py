"""The benchmark of whole calls, on a GPU of the emulator: its replays and counts. Times there mean nothing."""

import contextlib
import json
import sys

import pytest
import torch

from benchmarks import gpu_call
from benchmarks.gpu_call import Bench, Clock, Kernel, results
from benchmarks.gpu_timeline import beside, joined, lines
from tests.gpu.machine import emulated_gpu
from tests.support.emulated_gpu import EmulatedGpu
from zenc.api import compile
from zenc.errors import BuildError, Diagnostic

SMALL = (3000, 400, 100)


class EmulatedClock(Clock):
    """A clock for which tensors of the CPU are the emulated GPU's, and all work on a stream has ended."""

    device = torch.device("cpu")

    def gpu(self, nccl):
        gpu, machine = EmulatedGpu(0), emulated_gpu()
        gpu.libraries = lambda size: (machine.cuda, nccl)
        gpu.make_current()
        return gpu

    def stream(self):
        return contextlib.nullcontext()

    def wait(self):
        """Return at once: a call has ended when it returns."""

    def kernels(self, work):
        work()
        return (Kernel("expand", 1, 1.0), Kernel("pack", 2, 0.5))


@pytest.fixture(params=["balanced", "holders"])
def bench(request):
    return Bench(compile(request.param, ranks=3), 3, emulated_gpu(), EmulatedClock())


def test_a_call_is_made_again_without_peers(bench):
    """Each run is compared with the sum of all ranks, and asks for the messages that were kept."""
    found = {each.workload: each for each in results(bench, SMALL, 2)}
    assert list(found) == ["empty", "rows, 400 x 128, 1 %", "rows, 100 x 1,024, 1 %", "dense, 3,000, 5.2 %"]
    assert found["dense, 3,000, 5.2 %"].received > 400
    for each in found.values():
        assert each.call > 0 and [kernel.name for kernel in each.kernels] == ["expand", "pack"]
        assert each.to_json()["reads"] == each.call / each.read


def test_another_gradient_is_told_from_the_kept_messages(bench):
    gradients = gpu_call.row_gradients(torch.device("cpu"), 3, 400, 4)
    expected = bench._recorded(gradients)
    messages, _ = bench._kept()
    with pytest.raises(RuntimeError, match="another sum"):
        bench._again(gradients[0] * 2, expected, messages)


def test_it_says_so_where_there_is_no_gpu(monkeypatch, capsys):
    def none():
        raise BuildError(Diagnostic("cuda-unavailable", "there is no GPU"))

    monkeypatch.setattr(gpu_call, "real_gpu", none)
    monkeypatch.setattr(sys, "argv", ["gpu_call"])
    assert gpu_call.main() == 0 and json.loads(capsys.readouterr().out) == "not measured"


def test_a_timeline_says_what_runs_beside_what():
    found = {"model": [(0.0, 40.0), (30.0, 50.0)], "DDP": [], "zenc": [(40.0, 80.0), (90.0, 100.0)]}
    assert joined(found["model"]) == [(0.0, 50.0)]
    assert beside(found["zenc"], found["model"]) == pytest.approx(10 / 50)
    assert lines(found, 10) == [
        "model #####.....", "DDP   ..........", "zenc  ....####.#", "      0   0.1 ms",
    ]  # fmt: skip
