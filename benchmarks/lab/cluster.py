"""Hosts on this machine: a network namespace each, joined by a bridge in one more, every link shaped both ways.

    host 0 [eth0 tbf] ── [tbf port0]
    host 1 [eth0 tbf] ── [tbf port1]  bridge, in a namespace of its own
    ...

A token bucket (tbf) at eth0 shapes what a host sends, one at the port what it receives. Veths are made inside the
namespaces, so nothing but these namespaces is touched, and all goes when they go. Names carry the process that owns
them and when it started: what a killed lab has left is told from what a living one uses.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from benchmarks.lab.settings import ROOT, LabError

PREFIX = "zenclab"
SUBNET = "10.77.0.0/24"
SYSCTLS = (
    "net.ipv6.conf.all.disable_ipv6=1",
    "net.ipv4.tcp_slow_start_after_idle=0",
    "net.ipv4.tcp_no_metrics_save=1",
)
"""Each connection starts alike, and keeps its window through the pauses between calls."""
CONGESTION_CONTROL = "cubic"
"""Of all connections, by their route: a namespace may not choose its default, where that of the machine is another."""


class Cluster:
    """``size`` hosts with links of ``rate``, for as long as the ``with`` block runs or the process lives."""

    def __init__(self, size: int, rate: str, burst: int = 70_000, queue: str = "2mb") -> None:
        if not 1 <= size <= 250:
            raise LabError(f"a lab has 1 to 250 hosts, not {size}")
        self.size, self.rate, self.burst, self.queue = size, rate, burst, queue
        self.owner = owner_of(os.getpid())
        self.switch = f"{self.owner}-switch"

    def host(self, rank: int) -> str:
        """The namespace of ``rank``."""
        return f"{self.owner}-{rank}"

    @staticmethod
    def address(rank: int) -> str:
        """Of every lab the same: namespaces do not see each other."""
        return f"10.77.0.{rank + 1}"

    def __enter__(self) -> Cluster:
        remove_leftovers()
        self._watcher = _watch(self.owner)
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remove(self.owner)
        assert self._watcher.stdin
        self._watcher.stdin.close()
        self._watcher.wait()

    def command(self, rank: int, words: list[str]) -> list[str]:
        """``words``, run on the host of ``rank``."""
        return ["ip", "netns", "exec", self.host(rank), *words]

    def _make(self) -> None:
        _run("ip", "netns", "add", self.switch)
        _batch(self.switch, ["link add bridge0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"])
        _batch(self.switch, ["link set bridge0 up"])
        for rank in range(self.size):
            self._make_host(rank)

    def _make_host(self, rank: int) -> None:
        host, port = self.host(rank), f"port{rank}"
        _run("ip", "netns", "add", host)
        _run("ip", "netns", "exec", host, "sysctl", "-qw", *SYSCTLS)
        veth = f"link add {port} type veth peer name eth0 address {_hardware(rank)} netns {host}"
        _batch(self.switch, [veth, f"link set {port} master bridge0 up"])
        others = [peer for peer in range(self.size) if peer != rank]
        known = [f"neigh replace {self.address(p)} lladdr {_hardware(p)} dev eth0 nud permanent" for p in others]
        own = [f"addr add {self.address(rank)}/24 dev eth0", "link set eth0 up"]
        way = f"route replace {SUBNET} dev eth0 proto kernel scope link src {self.address(rank)}"
        _batch(host, ["link set lo up", *own, f"{way} congctl {CONGESTION_CONTROL}", *known])
        for namespace, device in ((host, "eth0"), (self.switch, port)):
            shape = ["tbf", "rate", self.rate, "burst", str(self.burst), "limit", self.queue]
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *shape)


def why_not() -> str:
    """What this process lacks to make a cluster, in words; "" where it has all."""
    missing = [f"the program {name}" for name in ("ip", "tc", "sysctl") if not shutil.which(name)]
    if missing:
        return f"{' and '.join(missing)} (Debian: apt install iproute2 procps)"
    if os.geteuid():
        return "root, to make network namespaces"
    try:
        with Cluster(1, "100mbit"):
            return ""
    except LabError as error:
        return f"the right to make and shape network namespaces ({error})"


def owner_of(pid: int) -> str:
    """The name of all that process ``pid`` makes. A number of a process is used again; with its start it is unique."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{PREFIX}-{pid}-{fields[19]}"


def namespaces() -> list[str]:
    """Of all labs on this machine."""
    names = [line.split()[0] for line in _try("ip", "netns", "list").splitlines() if line.strip()]
    return [name for name in names if name.startswith(f"{PREFIX}-")]


def remove(owner: str) -> None:
    """All namespaces of ``owner``, and what runs in them: a namespace lives as long as a process in it."""
    for name in namespaces():
        if name.startswith(f"{owner}-"):
            _kill_in(name)
            _try("ip", "netns", "delete", name)


def remove_leftovers() -> None:
    """The namespaces of labs whose process has ended."""
    for owner in {name.rpartition("-")[0] for name in namespaces()}:
        if not _lives(owner):
            remove(owner)


def watch() -> None:
    """Wait for the end of the process that feeds standard input, however it comes; then remove what it made."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner = sys.argv[1]
    sys.stdin.buffer.read()
    while any(name.startswith(f"{owner}-") for name in namespaces()):
        remove(owner)
        time.sleep(0.2)  # the last command of a killed owner may still be at work


def _lives(owner: str) -> bool:
    try:
        return owner_of(int(owner.split("-")[1])) == owner
    except (OSError, ValueError, IndexError):
        return False


def _watch(owner: str) -> subprocess.Popen[bytes]:
    code = "from benchmarks.lab.cluster import watch; watch()"
    command = [sys.executable, "-c", code, owner]
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)


def _kill_in(namespace: str) -> None:
    for pid in _try("ip", "netns", "pids", namespace).split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _hardware(rank: int) -> str:
    """A MAC address; locally administered."""
    return f"02:00:00:00:00:{rank + 1:02x}"


def _batch(namespace: str, lines: list[str]) -> None:
    _run("ip", "-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")


def _try(*words: str) -> str:
    """What ``words`` prints; nothing where it fails."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _run(*words: str, text: str = "") -> None:
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()}")
