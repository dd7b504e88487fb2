"""Where the stages of a collective are made."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from zenc.runtime.backends import Stages
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


def test_a_stage_is_made_on_the_device_of_its_tensors(monkeypatch, current):
    """Whichever is current: its kernels, its events and its communicator belong to the context that is."""
    made = []
    monkeypatch.setattr(device, "TorchGpu", lambda device: ("gpu", device, tuple(current)))
    monkeypatch.setattr(backend, "gpu_stage", lambda *given: made.append((given[1], tuple(current))) or "stage")
    stages = Stages(None, SimpleNamespace(rank=1), 3.0)
    second = torch.device("cuda", 1)
    assert stages.on(second) == "stage" and stages.on(second) == "stage"
    assert made == [(("gpu", second, (second,)), (second,))] and current == []
