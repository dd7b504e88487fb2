"""Hosts on this machine: a network namespace each, joined by a bridge in one more, every link shaped both ways.

    host 0 [eth0 tbf] ── [tbf port0]
    host 1 [eth0 tbf] ── [tbf port1]  bridge, in a namespace of its own
    ...

A token bucket (tbf) at eth0 shapes what a host sends, one at the port what it receives. Veths are made inside the
namespaces, so nothing but these namespaces is touched, and all goes when they go.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from zenc.common.limits import LIMITS
from zenc.errors import Diagnostic
from zenc.lab.namespaces import PACKAGES, Namespaces, NetworkError, program, why_forbidden

SUBNET = "10.77.0.0/24"
SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": 1,
    "net/ipv4/tcp_slow_start_after_idle": 0,
    "net/ipv4/tcp_no_metrics_save": 1,
}
"""Each connection starts alike, and keeps its window through the pauses between calls."""
CONGESTION_CONTROL = "cubic"
"""The congestion control of all connections, by their route: a namespace may not choose its default, where that of the
machine is another."""
_RATE = re.compile(r"(\d+(?:\.\d+)?) ?([kmg]?)bit(?:/s)?", re.IGNORECASE)
_FACTOR = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def bits_per_second(rate: str) -> float:
    """Return ``100mbit`` or ``100 Mbit/s`` as a number; raises NetworkError."""
    found = _RATE.fullmatch(rate)
    bits = float(found[1]) * _FACTOR[found[2].lower()] if found else 0.0
    if bits / 8 not in LIMITS["bandwidth"]:
        help = "write one as tc does, for instance 100mbit or 1gbit"
        raise NetworkError(Diagnostic("bad-lab", f"{rate!r:.60} is no rate", help=help))
    return bits


class EmulatedCluster:
    """``size`` hosts with links of ``rate``, for as long as the ``with`` block runs or the process lives."""

    def __init__(self, size: int, rate: str, burst: int = 70_000, queue: str = "2mb") -> None:
        if not 1 <= size <= 250:
            raise NetworkError(Diagnostic("bad-lab", f"a lab has 1 to 250 hosts, not {size}"))
        self.size, self.rate, self.burst, self.queue = size, f"{bits_per_second(rate):.0f}bit", burst, queue

    @property
    def nodes(self) -> int:
        """The number of namespaces beside that of the bridge."""
        return self.size

    @staticmethod
    def address(rank: int) -> str:
        """Return the address of the host of ``rank``, in every cluster the same: they do not see each other."""
        return f"10.77.0.{rank + 1}"

    def __enter__(self) -> EmulatedCluster:
        with ExitStack() as held:
            self.namespaces = held.enter_context(Namespaces(self.nodes))
            self._make()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def command(self, rank: int, words: list[str]) -> list[str]:
        """Return ``words`` as a command on the host of ``rank``, killed with the cluster."""
        return self.namespaces.command(self.namespaces.hosts[rank], words, ends_with_them=True)

    def carried(self) -> list[tuple[int, int]]:
        """Return the bytes that each host has sent and received over its links so far, headers included."""
        texts = (Path(f"/proc/{host}/net/dev").read_text() for host in self.namespaces.hosts[: self.size])
        found = [[line.split()[1:] for line in text.splitlines() if line.lstrip().startswith("eth")] for text in texts]
        return [(sum(int(of[8]) for of in host), sum(int(of[0]) for of in host)) for host in found]

    def _make(self) -> None:
        switch = self.namespaces.switch
        bridge = "link add bridge0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        self.ip(switch, [bridge, "link set bridge0 up"])
        for rank, host in enumerate(self.namespaces.hosts):
            veth = f"link add port{rank} type veth peer name eth0 address {_hardware(rank)} netns {host}"
            self.ip(switch, [veth, f"link set port{rank} master bridge0 up"])
            self._make_host(rank, host)
            self._shape(host, "eth0")
            self._shape(switch, f"port{rank}")

    def _make_host(self, rank: int, host: int) -> None:
        self._set(host, SYSCTLS)
        others = [peer for peer in range(self.size) if peer != rank]
        known = [f"neigh replace {self.address(p)} lladdr {_hardware(p)} dev eth0 nud permanent" for p in others]
        own = [f"addr add {self.address(rank)}/24 dev eth0", "link set eth0 up"]
        way = f"route replace {SUBNET} dev eth0 proto kernel scope link src {self.address(rank)}"
        self.ip(host, ["link set lo up", *own, f"{way} congctl {CONGESTION_CONTROL}", *known])

    def _set(self, host: int, sysctls: Mapping[str, int]) -> None:
        writes = (f"[ ! -e /proc/sys/{name} ] || echo {value} > /proc/sys/{name}" for name, value in sysctls.items())
        self.run(host, ["sh", "-ec", "\n".join(writes)])

    def _shape(self, process: int, device: str, rate: str = "") -> None:
        shape = ["tbf", "rate", rate or self.rate, "burst", str(self.burst), "limit", self.queue]
        self.run(process, [program("tc"), "qdisc", "replace", "dev", device, "root", *shape])

    def ip(self, process: int, lines: Sequence[str]) -> None:
        """Carry out ``lines`` of the program ip in the network of ``process``; raises as ``run`` does."""
        self.run(process, [program("ip"), "-batch", "-"], text="\n".join(lines) + "\n")

    def run(self, process: int, words: list[str], text: str = "") -> None:
        """Run ``words`` in the network of ``process``, ``text`` at standard input; raises NetworkError if it fails."""
        command = self.namespaces.command(process, words)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise NetworkError(Diagnostic("bad-lab", f"`{' '.join(words)}` failed: {said}"))


def why_not() -> str:
    """Return the lacks of this process for a cluster, in words; "" where it has all."""
    try:
        for name in PACKAGES:
            program(name)
    except NetworkError as error:
        return error.diagnostics[0].message
    try:
        with EmulatedCluster(1, "100mbit"):
            return ""
    except NetworkError as error:
        reason = why_forbidden() or f"{error.diagnostics[0].message} (a container may forbid it)"
        return f"network namespaces with links of a set rate: {reason}"


def _hardware(rank: int) -> str:
    """Return a MAC address, locally administered."""
    return f"02:00:00:00:00:{rank + 1:02x}"
