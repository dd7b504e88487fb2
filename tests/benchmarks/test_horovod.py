"""Horovod as a peer of the lab: said where it is missing, and right where it is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from benchmarks.lab.__main__ import others, parser, settings_of
from benchmarks.lab.horovod import why_not
from benchmarks.lab.peers import Peer
from benchmarks.lab.settings import ROOT, LabError
from benchmarks.lab.worker import timed


@pytest.fixture
def without_horovod(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "horovod"] or ["horovod"]:
        monkeypatch.setitem(sys.modules, name, None)


def test_without_it_the_lab_says_so_and_goes_on(without_horovod, capsys):
    assert re.match(r"Horovod \(.*horovod.*\); build it with Gloo and PyTorch, as docs/.+ says", why_not())
    options = parser().parse_args(["--network", "loopback", "--schemes", "holders"])
    assert settings_of(options).peers == ("holders", "torch-dense", "torch-coo")
    assert "horovod-coo takes Horovod (" in (said := capsys.readouterr().err) and "Going on without it" in said


def test_without_it_it_can_not_be_asked_for(without_horovod, capsys):
    with pytest.raises(LabError, match="horovod-coo takes Horovod"):
        others(["torch-coo", "horovod-coo"])
    assert others(["torch-coo"]) == ["torch-coo"] and others([]) == []
    assert not capsys.readouterr().err, "nobody asked"


def test_with_it_it_takes_part(monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.lab.__main__.why_not", lambda: "")
    assert others(None) == ("torch-dense", "torch-coo", "horovod-coo")
    assert others(["horovod-coo"]) == ["horovod-coo"] and not capsys.readouterr().err


def test_what_a_peer_starts_for_a_call_ends_after_it(monkeypatch):
    """Counted before the end, and none of it timed but the call."""
    order = []

    class Noted(Peer):
        def prepare(self):
            order.append("prepare")

        def call(self):
            order.append("call")
            return torch.zeros(1)

        def counted(self):
            order.append("counted")
            return 3, 4

        def finish(self):
            order.append("finish")

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        _, sample = timed(Noted())
    finally:
        dist.destroy_process_group()
    assert order == ["prepare", "call", "counted", "finish"]
    assert sample["counted"] == (3, 4) and sample["interface"] is None


@pytest.mark.skipif(bool(why_not()), reason="takes Horovod, which benchmarks/reports/benchmarks.md says how to build")
def test_three_ranks_over_loopback(tmp_path):
    """Started and stopped several times; the lab checks its sum."""
    command = [sys.executable, "-m", "benchmarks.lab", "--ranks", "3", "--network", "loopback", "--units", "2000"]
    wanted = ["--rounds", "3", "--schemes", "--peers", "torch-coo", "horovod-coo", "--json", str(tmp_path / "lab.json")]
    done = subprocess.run([*command, *wanted], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "lab.json").read_text())["peers"]["horovod-coo"]["rounds"] == 3
