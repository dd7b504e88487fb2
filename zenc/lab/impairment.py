"""Impairments of a cluster's network: packets that are lost, doubled or overtaken, and links that are down.

    host k [eth0] ── [port k, on its way in]  loss ─▶ double ─▶ detour ─▶ bridge
                                                                └─▶ [ifb0 tbf] ─▶ bridge, after those behind it

The kernel's queueing discipline for this, netem, is not in every kernel. Here filters of classic BPF at the ports draw
a random number for each packet, and the kernel drops it, mirrors it or sends it through a slow queue of its own: TCP
sees what it would see of a bad network. Hosts send one segment a packet, as on a wire, not many at once as veths may.
"""

from __future__ import annotations

from dataclasses import dataclass

from zenc.lab import cluster
from zenc.lab.namespaces import NetworkError, program

DETOUR = ("tbf", "rate", "5mbit", "burst", "2000", "limit", "2mb")
"""The queue that packets go through which others are to overtake: 2.4 ms for each that waits in it."""
_DROPPED, _MATCHED, _GOES_ON = 2, 2**32 - 1, 0
_RANDOM = 2**32 - 4096 + 56
"""The ancillary load of classic BPF that gives a random number: SKF_AD_OFF + SKF_AD_RANDOM."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """Shares of all packets: ``lost``, ``doubled``, and ``detoured``, so that those behind them overtake them."""

    lost: float = 0.0
    doubled: float = 0.0
    detoured: float = 0.0


CLEAN = Impairment()


class ImpairedCluster(cluster.EmulatedCluster):
    """A cluster whose network is impaired ``by`` something, and can be mended, or impaired otherwise, while in use."""

    def __init__(self, size: int, rate: str, burst: int = 70_000, queue: str = "2mb", by: Impairment = CLEAN) -> None:
        super().__init__(size, rate, burst, queue)
        self.by = by

    def __enter__(self) -> ImpairedCluster:
        super().__enter__()
        return self

    def _make(self) -> None:
        super()._make()
        switch = self.namespaces.switch
        for host in self.namespaces.hosts:
            self.ip(host, ["link set eth0 gso_max_segs 1"])
        self.ip(switch, ["link add ifb0 type ifb", "link set ifb0 up"])
        self._tc("qdisc", "add", "dev", "ifb0", "root", *DETOUR)
        for rank in range(self.size):
            self._tc("qdisc", "add", "dev", f"port{rank}", "clsact")
        if self.by != CLEAN:
            self.impair(self.by)

    def impair(self, by: Impairment) -> None:
        """Let packets of all hosts suffer ``by`` from now on, and no longer the impairment before."""
        for rank in range(self.size):
            port = f"port{rank}"
            self._tc("filter", "delete", "dev", port, "ingress")
            if by.lost:
                self._filter(port, 1, _chance(by.lost, _DROPPED, _MATCHED), "direct-action")
            if by.doubled:
                mirror = ("action", "mirred", "ingress", "mirror", "dev", port)
                self._filter(port, 2, _chance(by.doubled, _MATCHED, _GOES_ON), *mirror)
            if by.detoured:
                away = ("action", "mirred", "egress", "redirect", "dev", "ifb0")
                self._filter(port, 3, _chance(by.detoured, _MATCHED, _GOES_ON), *away)

    def set_link(self, rank: int, *, up: bool) -> None:
        """Set the link of the host of ``rank`` up or down, as if its plug was in or pulled out."""
        self.ip(self.namespaces.switch, [f"link set port{rank} {'up' if up else 'down'}"])

    def _filter(self, port: str, priority: int, bytecode: str, *action: str) -> None:
        where = ("dev", port, "ingress", "protocol", "all", "prio", str(priority))
        self._tc("filter", "add", *where, "bpf", "bytecode", bytecode, *action)

    def _tc(self, *words: str) -> None:
        self.run(self.namespaces.switch, [program("tc"), *words])


def why_not() -> str:
    """Return the lacks of this machine for such a cluster, in words; "" where it has all."""
    if missing := cluster.why_not():
        return missing
    try:
        with ImpairedCluster(1, "100mbit", by=Impairment(0.1, 0.1, 0.1)):
            return ""
    except NetworkError as error:
        return f"filters that draw random numbers (clsact, cls_bpf, act_mirred, ifb): {error.diagnostics[0].message}"


def _chance(share: float, then: int, otherwise: int) -> str:
    """Return a filter's bytecode, as tc takes it: its verdict is ``then`` for a random ``share`` of the packets."""
    load, jump_if_at_least, verdict = 32, 53, 6
    lines = (
        (load, 0, 0, _RANDOM),
        (jump_if_at_least, 1, 0, round(share * 2**32)),
        (verdict, 0, 0, then),
        (verdict, 0, 0, otherwise),
    )
    return ",".join([str(len(lines)), *(" ".join(map(str, line)) for line in lines)])
