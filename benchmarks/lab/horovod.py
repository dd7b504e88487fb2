"""Meeting of the ranks of Horovod, where it is installed, before each call of it.

Horovod's own thread exchanges messages every millisecond, whether there is something to sum or not. So that the other
peers have the network to themselves, it is started for its call alone, and stopped afterwards.
"""

import ctypes
import os
import socket
from collections.abc import Callable

import torch.distributed as dist

from benchmarks.lab.settings import LabError
from zenc.lab.cluster import EmulatedCluster

HOROVOD = "horovod-coo"
"""The name of the peer."""
INSTALL = "build it with Gloo and PyTorch, as benchmarks/reports/benchmarks.md says"


def why_not() -> str:
    """Return the missing parts of this peer, in words; "" where all are there."""
    try:
        import horovod.torch as hvd
    except ImportError as error:
        return f"Horovod ({str(error).splitlines()[0]}); {INSTALL}"
    return "" if hvd.gloo_built() else f"Horovod with Gloo; {INSTALL}"


def join() -> Callable[[], None]:
    """Let Horovod know this rank and the others, which meet at a server that rank 0 runs until it ends.

    What comes back makes that server forget where ranks were met, which it does not always do by itself; the next start
    would look for them there.
    """
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.gloo_run import create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousServer

    rank, size, device = dist.get_rank(), dist.get_world_size(), os.environ["GLOO_SOCKET_IFNAME"]
    names = [EmulatedCluster.address(other) for other in range(size)]
    slots = [SlotInfo(names[other], other, 0, other, size, 1, size) for other in range(size)]
    server = None if rank else RendezvousServer()
    port = [server.start() if server else 0]
    dist.broadcast_object_list(port)
    if device != "lo":
        take_name(names[rank])
    os.environ |= {
        **create_slot_env_vars(slots[rank]),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": device,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": os.environ["MASTER_ADDR"],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port[0]),
    }
    return lambda: server.init(slots) if server else None


def take_name(address: str) -> None:
    """Give this host a name that leads to it: Horovod looks up the host's name where it forgets the interface."""
    new_names = 0x04000000  # CLONE_NEWUTS
    if ctypes.CDLL(None, use_errno=True).unshare(new_names):
        raise LabError(f"{HOROVOD} takes a host name of its own: {os.strerror(ctypes.get_errno())}")
    socket.sethostname(address)
