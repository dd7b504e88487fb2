"""Where the backends of a collective are made."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from zenc.runtime.backends import Backends
from zenc.runtime.gpu import backend, device


@pytest.fixture
def current(monkeypatch) -> list[torch.device]:
    """The devices that are made current, the innermost last."""
    within: list[torch.device] = []

    @contextlib.contextmanager
    def device(which):
        within.append(which)
        yield
        within.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    return within


def test_a_backend_is_made_on_the_device_of_its_tensors(monkeypatch, current):
    """Whichever is current: its kernels, its events and its communicator belong to the context that is."""
    made = []
    monkeypatch.setattr(device, "TorchGpu", lambda device: ("gpu", device, tuple(current)))
    monkeypatch.setattr(backend, "GpuBackend", lambda *given: made.append((given[1], tuple(current))) or "backend")
    backends = Backends(None, SimpleNamespace(rank=1), 3.0)
    second = torch.device("cuda", 1)
    assert backends.on(second) == "backend" and backends.on(second) == "backend"
    assert made == [(("gpu", second, (second,)), (second,))] and current == []
