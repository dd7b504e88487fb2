"""The namespaces of the lab: shaped as asked for, and gone afterwards, however the lab ends. As root only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.lab.cluster import PREFIX, Cluster, namespaces, owner_of, remove_leftovers, why_not
from benchmarks.lab.settings import LabError

ROOT = Path(__file__).resolve().parents[2]
LAB = """
import subprocess, time
from benchmarks.lab.cluster import Cluster
with Cluster(2, "100mbit") as cluster:
    inside = subprocess.Popen(cluster.command(1, ["sleep", "600"]))
    print(cluster.owner, cluster._watcher.pid, inside.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    if missing := why_not():
        pytest.skip(f"namespaces take {missing}")


@pytest.fixture
def lab():
    """A lab at work: its process, its owner's name, and the processes of its watcher and on one of its hosts."""
    process = subprocess.Popen([sys.executable, "-c", LAB], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    owner, watcher, inside = process.stdout.readline().split()
    yield process, owner, int(watcher), int(inside)
    process.kill()
    process.wait()


def owned(owner: str) -> list[str]:
    return [name for name in namespaces() if name.startswith(f"{owner}-")]


def becomes_true(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def has_ended(pid: int) -> bool:
    """Also as a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_lab_leaves_nothing(lab, number):
    process, owner, _, inside = lab
    assert len(owned(owner)) == 3
    process.send_signal(number)
    assert becomes_true(lambda: not owned(owner)), "the watcher removes them"
    assert becomes_true(lambda: has_ended(inside)), "and what runs in them"


def test_what_a_dead_lab_left_is_removed_by_the_next(lab):
    process, owner, watcher, inside = lab
    os.kill(watcher, signal.SIGKILL)
    process.kill()
    process.wait()
    assert len(owned(owner)) == 3
    remove_leftovers()
    assert not owned(owner) and becomes_true(lambda: has_ended(inside))


def test_a_living_lab_is_left_alone(lab):
    _, owner, _, inside = lab
    with Cluster(1, "100mbit"):
        assert len(owned(owner)) == 3 and not has_ended(inside)


def test_hosts_and_ports_are_shaped_and_apart():
    before = Path("/proc/net/dev").read_text().count("\n")
    with Cluster(2, "50mbit", 60_000, "256kb") as cluster:
        for namespace, device in ((cluster.host(0), "eth0"), (cluster.switch, "port1")):
            command = ["tc", "-n", namespace, "qdisc", "show", "dev", device]
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert "tbf" in shown and "rate 50Mbit" in shown and "burst 60000b" in shown
        assert Path("/proc/net/dev").read_text().count("\n") == before, "no interface outside of the namespaces"
        assert len(owned(cluster.owner)) == 3
    assert not owned(cluster.owner)


def test_connections_are_cubic_at_both_ends():
    """Whatever the machine's default is."""
    server = "s = socket.create_server(('', 5000)); print('listens', flush=True); c, _ = s.accept()"
    client = f"c = socket.create_connection(('{Cluster.address(0)}', 5000))"
    asked = "; print(c.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).strip(b'\\0').decode())"
    with Cluster(2, "100mbit") as cluster:
        words = [[sys.executable, "-c", f"import socket; {code}{asked}"] for code in (server, client)]
        passive = subprocess.Popen(cluster.command(0, words[0]), stdout=subprocess.PIPE, text=True)
        assert passive.stdout and passive.stdout.readline() == "listens\n"
        active = subprocess.run(cluster.command(1, words[1]), capture_output=True, text=True, check=True, timeout=20)
        assert passive.communicate(timeout=20)[0] == active.stdout == "cubic\n"


def test_what_can_not_be_made_is_told_and_leaves_nothing():
    with pytest.raises(LabError, match="qdisc replace"), Cluster(2, "nonsense"):
        pass
    assert not owned(owner_of(os.getpid()))


def test_names_tell_processes_apart():
    assert owner_of(os.getpid()).startswith(f"{PREFIX}-{os.getpid()}-")
