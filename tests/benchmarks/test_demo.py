"""``make demo``: what it shows with a slow network and without one, and that it runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from benchmarks.lab.demo import __main__ as demo
from benchmarks.lab.demo.show import rate_in_words
from benchmarks.lab.network.cluster import why_not
from benchmarks.lab.settings import LabError
from benchmarks.lab.training.report import Report, report
from benchmarks.lab.training.settings import NO_SYNC, Training
from examples.language_model.corpus import Corpus

ROOT = Path(__file__).resolve().parents[2]
TEXT = Corpus(torch.arange(100), torch.arange(100), 60_000, 1, 1, 1, 1)
MS = {"ddp-dense": 4000, "ddp-sparse": 300, "auto": 200, NO_SYNC: 100}
SENT = {"ddp-dense": 46_000_000, "ddp-sparse": 2_000_000, "auto": 1_500_000, NO_SYNC: 1000}


def known(training: Training, auto_ms: float, losses: dict[str, list[float]]) -> Report:
    """Of records with two rounds in which every step takes what MS says, but for those of ``auto``."""

    def sample(name: str, number: int) -> dict[str, Any]:
        took = (auto_ms if name == "auto" else MS[name]) / 1e3
        interface = [SENT[name]] * 2 if training.rate else None
        return {"round": number, "started": 0.0, "ended": took, "processor": 0.1, "interface": interface}

    samples = {name: [{**sample(name, k), "counted": None} for k in range(2)] for name in training.peers}
    chosen = {name: {"words.weight": "holders"} if name == "auto" else {} for name in training.peers}
    record = {"machine": {"cores": 2}, "samples": samples, "losses": losses, "chosen": chosen}
    return report(training, {}, [record] * training.ranks)


@pytest.fixture
def shown(monkeypatch, capsys) -> Callable[..., str]:
    """What the demonstration says with these options, where each training is ``known``."""

    def of(*words: str, missing: str = "", others: float = 0.0, losses: dict[str, list[float]] | None = None) -> str:
        found = losses or {name: [8.0, 6.0] for name in MS} | {NO_SYNC: [8.0, 9.0]}
        monkeypatch.setattr(demo, "why_not", lambda: missing)
        monkeypatch.setattr(demo.corpus, "read", lambda: TEXT)
        monkeypatch.setattr(
            demo, "run", lambda training, *_, **__: known(training, 200 if training.rate else 320, found)
        )
        ticks = iter([0.0, 1e9 * others])
        monkeypatch.setattr(demo, "busy_seconds", lambda: next(ticks))
        Console(width=120).print(demo.demonstrated(demo.parser().parse_args(words)))
        return capsys.readouterr().out

    return of


def test_one_table_compares_both_networks(shown, tmp_path):
    said = shown("--json", str(tmp_path / "demo.json"))
    rows = {cells[0]: cells[1:] for line in said.splitlines() if len(cells := line.strip("│").split("│")) > 3}
    rows = {name.strip(): [cell.strip() for cell in cells] for name, cells in rows.items()}
    assert rows["zenc, auto"] == ["1.500", "320", "0.94", "200", "1.50"]
    assert rows["DDP, sparse gradients"] == ["2.000", "300", "1.00", "300", "1.00"]
    assert rows["nothing (the bound)"] == ["0.001", "100", "3.00", "100", "3.00"]
    assert "Between hosts on 100 Mbit/s a step is 1.50 times as fast with zenc" in said and "0.75 of the bytes" in said
    assert "On one machine, where DDP takes loopback, a step is 0.94 times as fast" in said
    assert "they fell from 8.00 to 6.00" in said and "Chosen on 100 Mbit/s: holders for words.weight." in said
    assert "Other programs" not in said
    networks = json.loads((tmp_path / "demo.json").read_text())["networks"]
    assert (
        networks["100 Mbit/s"]["peers"]["auto"]["seconds"]["median"] == 0.2 and "samples" not in networks["one machine"]
    )


def test_without_a_slow_network_it_says_why_and_predicts(shown):
    said = shown(missing="the program tc (Debian: apt install iproute2)")
    assert "No slow network here: it takes the program tc (Debian: apt install iproute2)." in said
    assert "Predicted, not measured" in said and "among 4 ranks on 100 Mbit/s" in said
    took = {name: float(ms) for name, ms in re.findall(r"^  (\w+).* ([\d.]+) ms$", said, re.MULTILINE)}
    assert took["zenc"] < took["all"] < took["ring"]
    assert "--network loopback was asked for" in shown("--network", "loopback")


def test_a_busy_machine_is_told(shown):
    assert re.search(r"Other programs used \d+% of the cores: times say little", shown(others=0.5))


def test_losses_that_are_not_equal_are_an_error(shown):
    with pytest.raises(LabError, match="auto does not train as ddp-sparse does"):
        shown(losses={name: [8.0, 6.1 if name == "auto" else 6.0] for name in MS})


def test_rates_in_words():
    assert [rate_in_words(rate) for rate in ("100mbit", "1gbit", "2500mbit", "8bit")] == [
        "100 Mbit/s",
        "1 Gbit/s",
        "2.5 Gbit/s",
        "8 bit/s",
    ]


@pytest.mark.slow
def test_it_runs():
    command = [sys.executable, "-m", "benchmarks.lab.demo", "--ranks", "2", "--steps", "2", "--scheme", "holders"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "zenc, holders" in done.stdout and "Losses are equal in every step" in done.stdout
    assert ("No slow network here" if why_not() else "Between hosts on 100 Mbit/s") in done.stdout
