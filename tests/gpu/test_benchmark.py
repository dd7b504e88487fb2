"""``benchmarks/gpu.py`` on a GPU of the emulator: what it runs and counts. Times of an emulator mean nothing."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu.machine import emulated_gpu
from zenc.codegen.render import render
from zenc.errors import BuildError, Diagnostic

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmark_of_gpus", SCRIPT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bench(script, request, monkeypatch):
    directory = Path(request.config.cache.mkdir("zenc-kernels"))
    directory.chmod(0o700)
    monkeypatch.setenv("ZENC_CACHE_DIR", str(directory))
    machine = emulated_gpu()
    return script.Bench(machine.cuda, machine.image(render(script.MAPPING, "cuda")))


def test_it_packs_what_it_says(script, bench):
    """The counts of every run are held against those of the tensor."""
    gradients = {"dense": script.dense_gradient(9_000, 0.05), "rows": script.row_gradient(700, 128, 0.1)}
    assert 300 < gradients["dense"].occupied < 600 and gradients["rows"].occupied == 70
    found = script.results(bench, gradients, 3, 2)
    stages = {"mark", "counts", "place", "encode", "pack", "copy"}
    assert set(found["dense"]) == stages | {"(mark + place + encode) / read", "pack / read"}
    assert set(found["rows"]) == stages | {"copy / place", "copy / (mark + place + encode)"}
    assert all(value > 0 for times in found.values() for value in times.values())


def test_ratios_are_to_reading_and_to_copying(script):
    times = {"mark": 2.0, "counts": 1.0, "place": 4.0, "encode": 1.0, "pack": 8.0, "copy": 2.0}
    assert script.ratios(times, dense=True) == {"(mark + place + encode) / read": 7.0, "pack / read": 8.0}
    assert script.ratios(times, dense=False) == {"copy / place": 0.5, "copy / (mark + place + encode)": 2 / 7}


def test_what_is_packed_wrong_is_not_measured(script, bench):
    gradient = script.row_gradient(700, 4, 0.1)
    gradient.occupied += 1
    with pytest.raises(RuntimeError, match="the GPU counts 70 units, and there are 71"):
        script.packed(bench, gradient, 2, 1)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_it_prints(script, bench, monkeypatch, capsys, as_json):
    machine = emulated_gpu()
    started = SimpleNamespace(path=machine.cuda, cuda=13, gpu=lambda ordinal: SimpleNamespace(name="NVIDIA Test"))
    monkeypatch.setattr(script, "driver", lambda: started)
    monkeypatch.setattr(
        script, "kernels_for", lambda gpu, driver, sources: SimpleNamespace(image=machine.image(sources))
    )
    sizes = ["--repeat", "1", "--parts", "2", "--dense-units", "3000", "--row-units", "200"]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *sizes, *(["--json"] if as_json else [])])
    script.main()
    printed = capsys.readouterr().out
    if as_json:
        found = json.loads(printed)
        assert found["machine"] == "NVIDIA Test, CUDA 13"
        assert set(found["milliseconds and ratios"]) == {"dense, 3,000, 5.2 %", "rows, 200 x 128, 1 %"}
    else:
        assert printed.startswith("NVIDIA Test, CUDA 13\ndense, 3,000, 5.2 %\n  mark")
        assert printed.count(" is wanted\n") == 2


@pytest.mark.parametrize(("flags", "said"), [([], "not measured\n"), (["--json"], '"not measured"\n')])
def test_without_a_gpu_nothing_is_measured(script, monkeypatch, capsys, flags, said):
    def missing():
        raise BuildError(Diagnostic("cuda-unavailable", "there is no CUDA driver"))

    monkeypatch.setattr(script, "driver", missing)
    monkeypatch.setattr(sys, "argv", ["gpu.py", *flags])
    script.main()
    assert capsys.readouterr().out == said
