"""The network interface that gloo takes for messages between ranks, as torch's ProcessGroupGloo chooses it.

``GLOO_SOCKET_IFNAME`` names it; otherwise it is the one with the address that this machine's own name resolves to;
otherwise loopback, over which no other machine can be reached.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from zenc.doctor import Finding

NAMED = "GLOO_SOCKET_IFNAME"
_ADDRESS_OF = 0x8915  # SIOCGIFADDR of Linux
_HELP = "ranks on one machine are fine; for several machines, export GLOO_SOCKET_IFNAME={} on each"


@dataclass(frozen=True, slots=True)
class Address:
    """An address of this machine, and the interface that has it if known."""

    text: str
    interface: str | None

    @property
    def is_loopback(self) -> bool:
        """Return whether it reaches this machine alone (127.0.0.0/8, ::1)."""
        return ip_address(self.text).is_loopback

    def __str__(self) -> str:
        speed = _speed(self.interface)
        rate = f", {speed / 1000:g} Gbit/s" if speed else ""
        return f"{self.interface} ({self.text}{rate})" if self.interface else self.text


def interface() -> Finding:
    """Check the interface by name or by this machine's own name, and that gloo can open it."""
    named = os.environ.get(NAMED, "").strip()
    return _by_name(named) if named else _by_hostname()


def _by_name(names: str) -> Finding:
    known = [name for _, name in socket.if_nameindex()]
    for name in names.split(","):
        if name not in known:
            help = f"this machine has {', '.join(known)}"
            return Finding("network", "broken", f"{NAMED}={names}: there is no interface {name!r}", help=help)
        if problem := _refused(interface=name):
            return Finding("network", "broken", f"gloo can't open {name}: {problem}", help=f"set {NAMED} to another")
    return Finding("network", "good", f"{names}, by {NAMED}")


def _by_hostname() -> Finding:
    host, here = socket.gethostname(), addresses()
    own = next((address for address in _resolved(host) if _can_bind(address)), None)
    if problem := _refused():
        help = f"set {NAMED} to one of {', '.join(sorted({address.interface or '' for address in here}))}"
        return Finding("network", "broken", f"gloo can't open an interface: {problem}", help=help)
    address = next((each for each in here if each.text == own), Address(own, None) if own else None)
    if address is not None and not address.is_loopback:
        return Finding("network", "good", f"{address}, which the name {host} resolves to")
    why = f"the name {host} resolves to {own}" if own else f"the name {host} resolves to no address of this machine"
    others = [each for each in here if not each.is_loopback]
    help = _HELP.format(others[0].interface if others else "NAME")
    return Finding("network", "warning", f"loopback: {why}", tuple(f"there is {each}" for each in others), help)


def _resolved(host: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, None)))
    except OSError:
        return []


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def _refused(**chosen: str) -> str | None:
    """Return the words of gloo where it can't open the interface ``chosen``, or one of its own choice."""
    try:
        from torch.distributed import ProcessGroupGloo
    except ImportError as problem:
        return str(problem)
    try:
        ProcessGroupGloo.create_device(**chosen) if chosen else ProcessGroupGloo.create_default_device()
    except RuntimeError as problem:
        return str(problem).partition("\n")[0]
    return None


def addresses() -> list[Address]:
    """Return the IPv4 addresses of this machine's interfaces on Linux, loopback last; none elsewhere."""
    found = [Address(text, name) for _, name in socket.if_nameindex() if (text := _ipv4(name))]
    return sorted(found, key=lambda address: address.is_loopback)


def _ipv4(name: str) -> str | None:
    try:
        import fcntl

        request = bytearray(struct.pack("256s", name.encode()[:15]))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            fcntl.ioctl(asking.fileno(), _ADDRESS_OF, request)
    except (ImportError, OSError):
        return None
    return socket.inet_ntoa(bytes(request[20:24]))


def _speed(name: str | None) -> int:
    try:
        return max(0, int(Path(f"/sys/class/net/{name}/speed").read_text("ascii")))
    except (OSError, ValueError):
        return 0
