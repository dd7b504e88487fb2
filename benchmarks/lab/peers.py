"""Peers that are compared: each turns a sparse gradient of this rank into the sum over all ranks.

torch-dense    torch.distributed.all_reduce of the dense tensor
torch-coo      torch.distributed.all_reduce of the sparse COO tensor
horovod-coo    Horovod's sparse all-reduce of the same, where it is installed: benchmarks.lab.horovod
any other      a scheme of zenc, by its name or its file, on the gradient as it is; one that chooses, as auto does,
               once it has chosen
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist

import zenc
from benchmarks.lab.horovod import HOROVOD, join, why_not
from benchmarks.lab.settings import LabError
from zenc.runtime.call.collective import Collective

TORCH = ("torch-dense", "torch-coo")


class Peer(Protocol):
    """A way to sum. ``call()`` is timed, ``prepare()`` and ``finish()`` are not; ``counted()`` counts the bytes."""

    def call(self) -> torch.Tensor:
        """Return the sum."""

    def settle(self) -> None:
        """Make calls before the first round, by all ranks; none, unless a peer needs them."""
        return

    def prepare(self) -> None:
        """Do nothing, unless a peer needs it."""
        return

    def counted(self) -> tuple[int, int] | None:
        """Return the bytes that the last call sent and received by its own count, TCP left out; None without one."""
        return None

    def finish(self) -> None:
        """Do nothing, unless a peer needs it."""
        return


def rehearse(peer: Peer, calls: int) -> None:
    """Make ``calls`` of ``peer`` that are not timed, by all ranks."""
    for _ in range(calls):
        peer.prepare()
        peer.call()
        peer.finish()


class Sum(Peer):
    """The sum of ``gradient`` over all ranks."""

    def __init__(self, gradient: torch.Tensor) -> None:
        self.gradient = gradient
        self.input = gradient


class TorchDense(Sum):
    def __init__(self, gradient: torch.Tensor) -> None:
        super().__init__(gradient)
        self.dense = gradient.to_dense()  # itself, where it is dense
        self.input = torch.empty_like(self.dense)

    def prepare(self) -> None:
        self.input.copy_(self.dense)

    def call(self) -> torch.Tensor:
        dist.all_reduce(self.input)
        return self.input


class TorchSparse(Sum):
    def prepare(self) -> None:
        self.input = self.gradient.clone()

    def call(self) -> torch.Tensor:
        dist.all_reduce(self.input)
        return self.input.coalesce()


class Horovod(Sum):
    """Horovod's all-reduce of sparse tensors, which gathers indices and values of all ranks.

    ``prepare()`` also makes one call that is not timed: its connections are new, as those of other peers are not.
    """

    def __init__(self, gradient: torch.Tensor) -> None:
        super().__init__(gradient)
        if missing := why_not():
            raise LabError(f"{HOROVOD} takes {missing}")
        import horovod.torch as hvd

        self.horovod = hvd
        self.forget = join()

    def prepare(self) -> None:
        self.forget()
        dist.barrier()
        self.horovod.init()
        self.call()

    def call(self) -> torch.Tensor:
        wait = self.horovod.sparse_allreduce_async(self.gradient, "gradient", self.horovod.Sum)
        total: torch.Tensor = wait()
        return total.coalesce()

    def finish(self) -> None:
        self.horovod.shutdown()


class Scheme(Sum):
    def __init__(self, gradient: torch.Tensor, name: str, shared_memory: bool = True) -> None:
        super().__init__(gradient)
        self.collective = zenc.load(name, shared_memory=shared_memory)

    def settle(self) -> None:
        rehearse(self, calls_to_choose(self.collective))

    def prepare(self) -> None:
        if not self.gradient.is_sparse:
            self.input = self.gradient.clone()  # a dense one is summed in place

    def call(self) -> torch.Tensor:
        return self.collective.all_reduce(self.input)

    def counted(self) -> tuple[int, int] | None:
        return bytes_of([self.collective.stats])


def bytes_of(stats: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Return the bytes that calls with these statistics sent and received."""
    of = [(each["bytes_sent"], each["bytes_received"]) for each in stats]
    return sum(sent for sent, _ in of), sum(received for _, received in of)


def calls_to_choose(collective: Collective) -> int:
    """Return the number of calls after which the scheme has chosen another one for a tensor.

    0 if it does not choose.
    """
    artifacts = collective.artifact.choosing
    return len(artifacts.candidates) * artifacts.settings.trials + 1 if artifacts else 0


def is_dense(name: str) -> bool:
    """Return whether a peer sends the whole tensor, which takes so long that it is to take part in few rounds."""
    return "dense" in name


def peer(name: str, gradient: torch.Tensor) -> Peer:
    """Return the peer ``name`` on this rank; all ranks make it together."""
    known: dict[str, Callable[[torch.Tensor], Peer]] = {
        "torch-dense": TorchDense,
        "torch-coo": TorchSparse,
        HOROVOD: Horovod,
    }
    return known[name](gradient) if name in known else Scheme(gradient, name)
