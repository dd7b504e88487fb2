"""Namespaces of the hosts have the requested shape, and are gone when the lab ends, for root and for users."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from zenc.lab.cluster import EmulatedCluster, why_not
from zenc.lab.impairment import ImpairedCluster, Impairment
from zenc.lab.namespaces import NetworkError
from zenc.lab.routed import RoutedCluster
from zenc.topology.load import load_topology

ROOT = Path(__file__).resolve().parents[2]
LAB = """
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from zenc.lab.cluster import EmulatedCluster
with EmulatedCluster(2, "100mbit") as cluster:
    tell = 'read -r pid rest < /proc/self/stat; echo "$pid"; exec sleep 600'
    inside = subprocess.Popen(cluster.command(1, ["sh", "-c", tell]), stdout=subprocess.PIPE, text=True)
    processes = [cluster.namespaces.switch, *cluster.namespaces.hosts, inside.stdout.readline().strip()]
    print(*processes, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    if missing := why_not():
        pytest.skip(f"a shaped network takes {missing}")


@pytest.fixture(params=["as we are", "in a user namespace"])
def right(request, monkeypatch):
    """The user that makes namespaces: this one, and root treated as another user."""
    if request.param == "in a user namespace":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)


def becomes_true(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_lab_leaves_nothing(number):
    """A namespace without a name lives as long as a process in it, so all processes must end."""
    lab = subprocess.Popen([sys.executable, "-c", LAB], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert lab.stdout
    inside = [int(pid) for pid in lab.stdout.readline().split()]
    try:
        assert len(inside) == 4 and not any(map(has_ended, inside))
        lab.send_signal(number)
        assert becomes_true(lambda: all(map(has_ended, inside))), "what holds the namespaces, and what runs in them"
    finally:
        lab.kill()
        lab.communicate()


def test_hosts_and_ports_are_shaped_and_apart(right):
    before = Path("/proc/net/dev").read_text().count("\n")
    with EmulatedCluster(2, "50mbit", 60_000, "256kb") as cluster:
        made = cluster.namespaces
        for process, device in ((made.hosts[0], "eth0"), (made.switch, "port1")):
            command = made.command(process, ["tc", "qdisc", "show", "dev", device])
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert "tbf" in shown and "rate 50Mbit" in shown and "burst 60000b" in shown
        networks = {os.readlink(f"/proc/{process}/ns/net") for process in (made.switch, *made.hosts, "self")}
        assert len(networks) == 4, "each has one of its own"
        assert Path("/proc/net/dev").read_text().count("\n") == before, "no interface outside of the namespaces"
    assert all(map(has_ended, (made.switch, *made.hosts)))


def test_a_new_impairment_takes_the_place_of_the_one_before(monkeypatch):
    told = list[tuple[str, ...]]()
    monkeypatch.setattr(ImpairedCluster, "_tc", lambda self, *words: told.append(words))
    ImpairedCluster(1, "100mbit").impair(Impairment(lost=0.5))
    assert told[0] == ("filter", "delete", "dev", "port0", "ingress")
    assert [words[:4] for words in told[1:]] == [("filter", "add", "dev", "port0")]


CORNER = """topology corner {
    levels: host(3)
    switch near
    switch far
    link host(0) - near: 40 Mbit/s
    link host(1) - near: 60 Mbit/s
    link near - far: 30 Mbit/s
    link far - host(2): 20 Mbit/s
}"""
TALK = """
import socket, sys
here, there = sys.argv[1:]
with socket.create_server((here, 7000)) as server:
    if there:
        with socket.create_connection((there, 7000), 5) as client:
            client.sendall(bytes(30_000))
    else:
        print("ready", flush=True)
        with server.accept()[0] as client:
            print(client.getpeername()[0], sum(len(got) for got in iter(lambda: client.recv(4096), b"")))
"""


def test_hosts_are_joined_as_a_topology_says(right):
    """Two switches forward between the first host and the last, and each end of a link has the rate of the link."""
    with RoutedCluster(load_topology(CORNER)) as cluster:
        made = cluster.namespaces
        rates = {"eth0": "40Mbit", "eth1": "60Mbit", "eth2": "30Mbit"}
        near = made.command(made.hosts[cluster.places["near"]], ["tc", "qdisc"])
        shown = subprocess.run(near, capture_output=True, text=True, check=True).stdout
        assert all(re.search(f"dev {device} root .* rate {rate}", shown) for device, rate in rates.items())
        hears = cluster.command(2, [sys.executable, "-c", TALK, cluster.address(2), ""])
        with subprocess.Popen(hears, stdout=subprocess.PIPE, text=True) as hearing:
            assert hearing.stdout and hearing.stdout.readline() == "ready\n"
            tells = cluster.command(0, [sys.executable, "-c", TALK, cluster.address(0), cluster.address(2)])
            subprocess.run(tells, check=True, timeout=20)
            assert hearing.stdout.read() == f"{cluster.address(0)} 30000\n"
        (sent, _), (nothing, _), (_, received) = cluster.carried()
        assert sent > 30_000 > nothing and received > 30_000


@pytest.mark.parametrize("cluster", ["ring(4)", CORNER.replace("}", "link host(0) -> far: 10 Mbit/s }")])
def test_a_topology_that_hosts_can_not_have_is_refused(cluster):
    with pytest.raises(NetworkError, match="bad-lab"):
        RoutedCluster(load_topology(cluster))


def test_a_link_that_no_processor_can_play_is_shown():
    with pytest.raises(NetworkError, match="has 50 GB/s") as error:
        RoutedCluster(load_topology(CORNER.replace("30 Mbit", "400 Gbit")))
    assert error.value.diagnostics[0].span and "thousand" in error.value.diagnostics[0].help


def test_a_script_runs_on_a_topology(tmp_path):
    """Each rank has a host; its hosts and rates can't be said twice."""
    (tmp_path / "corner.zen").write_text(CORNER)
    (tmp_path / "told.py").write_text("import os; print(os.environ['LOCAL_RANK'], os.environ['WORLD_SIZE'])")
    given = [sys.executable, "-m", "zenc", "lab", "--topology", "corner.zen"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    found = run([*given, "--", "told.py"])
    assert sorted(found.stdout.splitlines()[:3]) == [f"rank {rank} | 0 3" for rank in range(3)], found.stderr
    assert "3 hosts, 3 ranks, links as in corner.zen" in found.stdout
    assert "--topology has its hosts" in run([*given, "--hosts", "3", "--", "told.py"]).stderr
