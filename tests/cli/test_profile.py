"""``zenc profile`` and ``zenc lab``: profiles shown and drawn, and ranks on hosts of this machine."""

import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.cli.conftest import Write, Zenc
from zenc.cli import app
from zenc.lab import cluster, impairment, namespaces
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile

FOUR = {"units": 8, "width": 2, "dtype": "f16", "ranks": [[0, 1], [0, 2], [0, 3], [0, 4]]}


def shown(zenc: Zenc, file: str, *options: str) -> dict:
    done = zenc("profile", "show", file, "--json", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] is True
    return found


def test_what_is_recorded_is_shown(zenc: Zenc, write: Write) -> None:
    done = zenc("profile", "record", write("four.json", json.dumps(FOUR)), "--name", "words", "-o", "words.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "words.json: words, 8 units of 2 f16, a rank holds 25 %\n"
    (words,) = shown(zenc, "words.json")["profiles"]
    assert (words["name"], words["units"], words["ranks"], words["bytes"]) == ("words", 8, 4, 32)
    assert words["density"] == pytest.approx(0.25, rel=1e-3)
    assert words["recorded"]["steps"] == 1
    text = zenc("profile", "show", "words.json").stdout
    assert "words: 8 units of 2 f16 (32 B)" in text
    assert "among 4 ranks" in text and "ranks k                    1       2       4       8" in text


@pytest.mark.parametrize(
    ("law", "overlap"),
    [([], 0.05), (["--zipf", "1.05"], None), (["--overlap", "0.4"], 0.4), (["--core", "0.6"], 0.62)],
    ids=str,
)
def test_what_is_made_up_is_shown(zenc: Zenc, tmp_path: Path, law: list[str], overlap: float | None) -> None:
    options = ["--units", "20000", "--width", "8", "--dtype", "bf16", "--density", "0.05", "--name", "any"]
    done = zenc("profile", "draw", *options, *law, "-o", "any.json")
    assert done.returncode == 0, done.stderr
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[(tmp_path / "any.json").read_bytes()]).start()
    (made,) = shown(zenc, "pipe", "--ranks", "3")["profiles"]  # what comes by a pipe can be read once
    assert made["density"] == pytest.approx(0.05)
    assert (made["ranks"], made["recorded"], made["holders"]["ranks"]) == (None, None, 3)
    assert sum(made["holders"]["share_of_held"]) == pytest.approx(1)
    assert made["densification"]["2"] == pytest.approx(2 - made["overlap"])
    if overlap is not None:
        assert made["overlap"] == pytest.approx(overlap, rel=0.02)


def test_one_of_several_is_chosen_and_drawn(zenc: Zenc, tmp_path: Path) -> None:
    texts = [zenc("profile", "draw", "--name", name, "--units", "99", "-o", "-").stdout for name in ("a", "b")]
    both = {"zenc_profiles": 1, "profiles": [json.loads(text)["profiles"][0] for text in texts]}
    (tmp_path / "both.json").write_text(json.dumps(both))
    assert [each["name"] for each in shown(zenc, "both.json")["profiles"]] == ["a", "b"]
    found = shown(zenc, "both.json", "--parameter", "b", "--plot", "b.svg")
    assert [each["name"] for each in found["profiles"]] == ["b"] and found["file"] == "b.svg"
    drawn = (tmp_path / "b.svg").read_text()
    assert drawn.startswith("<?xml") and "overlap of two ranks: 1 %" in drawn and "holders among 8 ranks" in drawn
    zenc("profile", "show", "both.json", "--parameter", "b", "--plot", "again.svg")
    assert (tmp_path / "again.svg").read_text() == drawn
    missing = zenc("profile", "show", "both.json", "--parameter", "c")
    assert missing.returncode == 1 and "has no profile 'c', but 'a', 'b'" in missing.stderr


def test_npz_files_are_read(zenc: Zenc, tmp_path: Path) -> None:
    np.savez(tmp_path / "step.npz", units=100, width=4, dtype="f32", rank0=np.arange(10), rank1=np.arange(5, 15))
    assert zenc("profile", "record", "step.npz", "-o", "step.json").returncode == 0
    assert shown(zenc, "step.json")["profiles"][0]["overlap"] == pytest.approx(0.5, abs=0.02)


def test_what_a_dry_run_saw_is_shown(zenc: Zenc, tmp_path: Path) -> None:
    parameters = (
        ParameterProfile("first.weight", (8, 4), "f32", "dense", 1.0, 0.004, 0.001),
        ParameterProfile("last.weight", (4,), "f16", "dense", 0.5, 0.001, 0.002),
        ParameterProfile("idle", (), "f32", "dense", None),
    )
    ModelProfile(2, "gloo", "cpu", 9, 0.01, 0.004, 0.002, parameters, {}, 0.003, 0.004).save(tmp_path / "model.json")
    found = shown(zenc, "model.json", "--plot", "model.svg")
    assert [each["ready"] for each in found["model"]["parameters"]] == [0.004, 0.001, None] and not found["profiles"]
    lines = zenc("profile", "show", "model.json").stdout.splitlines()
    assert lines[0] == "3 parameters, 140 B of gradients, on 2 ranks by gloo"
    step = "  a step takes 10 ms, forward 3 ms, backward 4 ms; 2 ms (20 %) waits for synchronisation alone"
    assert lines[1] == step
    assert [line.split()[0] for line in lines[3:]] == ["last.weight", "first.weight", "idle"], "as they are ready"
    assert lines[3].endswith("2 ms   1 ms  --------|") and lines[5].endswith("not seen")
    drawn = (tmp_path / "model.svg").read_text()
    assert "When gradients are ready" in drawn and "last.weight" in drawn and "idle" not in drawn


BYTES = 300_000
SCRIPT = f"""
import os, socket, sys, time
variables = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GLOO_SOCKET_IFNAME")
print(*(os.environ[name] for name in variables), os.readlink("/proc/self/ns/net"))
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank = int(os.environ["RANK"])
if rank == 0:
    with socket.create_server(place) as server, server.accept()[0] as other:
        while other.recv(1 << 16): pass
if rank == 3:
    while True:
        try:
            with socket.create_connection(place) as to: to.sendall(bytes({BYTES}))
            break
        except ConnectionRefusedError: time.sleep(0.01)
print("arguments", *sys.argv[1:], file=sys.stderr)
if sys.argv[1] == "--fail":
    time.sleep(0 if rank == 2 else 0.7)
    sys.exit(5 + rank)
"""


def test_what_the_machine_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "PATHS", str(tmp_path))
    (tmp_path / "train.py").touch()
    done = CliRunner().invoke(app, ["lab", "--json", str(tmp_path / "train.py")])
    (told,) = json.loads(done.stdout)["diagnostics"]
    assert done.exit_code == 1 and told["id"] == "lab-missing" and "zenc help lab-missing" in told["help"]
    assert told["message"] == "hosts on this machine take the program ip (Debian: apt install iproute2)"


def hosts_of(lines: str) -> dict[int, tuple[str, str]]:
    """Return the variables that each rank has printed, and its network."""
    found = re.findall(r"^rank (\d) \| (\d 4 \d 2 eth0) (net:\[\d+\])$", lines, re.MULTILINE)
    return {int(rank): (variables, network) for rank, variables, network in found}


def test_ranks_of_a_host_share_its_network_and_the_first_to_fail_ends_the_run(zenc: Zenc, write: Write) -> None:
    if missing := cluster.why_not():
        pytest.skip(f"a shaped network takes {missing}")
    write("train.py", SCRIPT)
    sizes = ("--hosts", "2", "--ranks-per-host", "2", "--rate", "1gbit")
    done = zenc("lab", *sizes, "--json", "--", "train.py", "--fail", "--hosts", "9")
    ranks, found = hosts_of(done.stderr), json.loads(done.stdout)
    assert [ranks[k][0] for k in range(4)] == ["0 4 0 2 eth0", "1 4 1 2 eth0", "2 4 0 2 eth0", "3 4 1 2 eth0"]
    assert ranks[0][1] == ranks[1][1] != ranks[2][1] == ranks[3][1]
    assert "rank 3 | arguments --fail --hosts 9\n" in done.stderr
    assert done.returncode == 7 and found["failed"] == 2 and not found["ok"] and found["ranks"] == 4
    assert found["diagnostics"][0]["message"] == "rank 2, on host 1, was the first to fail, with exit status 7"
    first, second = found["links"]
    assert BYTES < second["sent"] < 1.2 * BYTES and BYTES < first["received"] < 1.2 * BYTES > 20 * first["sent"]


def test_a_module_runs_over_links_that_lose_packets(zenc: Zenc, write: Write) -> None:
    if missing := impairment.why_not():
        pytest.skip(f"a network that loses packets takes {missing}")
    write("train.py", SCRIPT)
    sizes = ("--hosts", "2", "--ranks-per-host", "2", "--loss", "0.01", "--rate", "100 Mbit/s", "--queue", "256kb")
    done = zenc("lab", *sizes, "--", "-m", "train", "now", ZENC_ATTACH="1")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.count(" | arguments now\n") == 4
    assert "\n2 hosts, 4 ranks, links of 100 Mbit/s each way: " in done.stdout
    rows = re.findall(r"^ +(\d) +([\d.]+ k?B) +([\d.]+ k?B)$", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "1"] and float(rows[1][1].split()[0]) > BYTES / 1e3
    assert "ZENC_ATTACH=0 zenc lab" in done.stdout
