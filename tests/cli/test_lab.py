"""``zenc lab``: ranks on hosts of this machine, as a user runs a script on them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import Write, Zenc
from zenc.cli import app
from zenc.lab import cluster, impairment, namespaces

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
