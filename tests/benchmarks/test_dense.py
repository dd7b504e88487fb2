"""``benchmarks.lab.dense``: backward passes on a network, none of whose gradients are lost; its page is its files."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks.lab.dense import peers
from benchmarks.lab.dense.__main__ import parser, settings_of
from benchmarks.lab.dense.peers import Attached
from benchmarks.lab.dense.settings import TORCH, Backwards, Layer
from benchmarks.lab.dense.suite import BALANCED_TOP, FOLDER, PAGE, POINTS, SCHEMES, with_tables
from benchmarks.lab.results import Row, Spread
from benchmarks.lab.settings import LabError, Run
from benchmarks.lab.suite.results import Result, load


def test_settings_are_read_back():
    given = settings_of(parser().parse_args(["--ranks", "2", "--network", "loopback", "--rows", "9"]))
    assert Backwards.from_json(given.to_json()) == given
    assert given.peers == (*TORCH, "topk_a2a") and given.reference == "torch-dense"
    assert given.workload == Layer(9, 2000) and "9 x 2,000 float32" in given.title


@pytest.mark.parametrize("lost", [0.0, 1.0])
def test_what_a_scheme_loses_is_found(monkeypatch, lost):
    class Handle:
        class collective:
            size = 1
            artifact = type("Artifact", (), {"plan": type("Plan", (), {"feedback": "residual"})})

            @staticmethod
            def residual(name: str) -> torch.Tensor:
                return torch.ones(2, 3)

    monkeypatch.setattr(peers.dist, "all_reduce", lambda tensor: None)
    peer = Attached.__new__(Attached)
    peer.shape, peer.handle, peer.ddp = (2, 3), Handle, nn.Module()
    peer.given, peer.got = torch.full((2, 3), 5.0 + lost).double(), torch.full((2, 3), 4.0).double()
    if not lost:
        peer.check("top")
        return
    with pytest.raises(LabError, match="top loses gradients: 1 of a unit"):
        peer.check("top")


def result(**seconds: float) -> Result:
    def row(took: float) -> Row:
        spread = Spread(took, took, took)
        return Row(3, spread, spread, None, None, 1000, 1000, 0.95, 0.1)

    run = Run(4, "100mbit", 1, "2mb", {}, tuple(seconds), "torch-dense", 3, 3, 2, 1)
    rows = {name: row(took) for name, took in seconds.items()}
    samples = {name: [took] * 3 for name, took in seconds.items()}
    return Result("dense-4", "python", "4 ranks", run, {"commit": "c"}, None, rows, samples, 1.0, 0.0)


def test_goals_are_met_or_missed():
    page = "<!-- results: written by the suite --><!-- end of results -->"
    found = with_tables(page, {"dense-4": result(**{"torch-dense": 2.0, "topk_a2a": 1.0, BALANCED_TOP: 0.2})})
    assert "| `topk_a2a` | 1.9 | 2.00 | met | 0.95 | met |" in found
    assert "| `balanced_top` | 20 | 10.00 | missed | 0.95 | met |" in found
    assert "| `one_bit` | 12 |  | not measured |  |  |" in found


def test_the_page_is_that_of_the_files():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page, load(FOLDER, POINTS))
    assert all(set(SCHEMES) <= set(point.words) for point in POINTS)
