"""Collectives of hosts, over gloo, for data other than gradients, such as counts, states and times.

Each is called on the worker's turn, by all ranks of ``among`` at the same place among their calls, and raises
SynchronisationError (``deadline``, ``peer-lost``) where one stays away or ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.group.communicator import Communicator


def allreduce_sum(
    among: Communicator, marks: torch.Tensor, number: int, tensor: str = "a tensor"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of ``marks`` [n] over the ranks, in place, and the ``number`` of each rank [size]; both int64.

    Raises SynchronisationError (``different-calls``) where their numbers of marks differ, which would make gloo end the
    process.
    """
    purpose = f"count who holds which units of {tensor}"
    told = torch.stack(_counts(among, [number, len(marks)], purpose))
    if bool((told[:, 1] != len(marks)).any()):
        help = "all ranks must call the same collectives, on tensors of one name and shape, in the same order"
        message = f"the ranks are in other calls: they count {told[:, 1].tolist()} units of a tensor, by rank"
        error = SynchronisationError(Diagnostic("different-calls", message, help=help))
        among.abort(error, marks)
        raise error
    among.run_together(lambda group: group.allreduce([marks]), purpose, marks)
    return marks, told[:, 0]


def summed(among: Communicator, values: torch.Tensor) -> torch.Tensor:
    """Return the sum of ``values`` [n] float32 over the ranks, added as float64; the same bits on all of them."""
    total = values.to(torch.float64)
    if among.size > 1:
        among.run_together(lambda group: group.allreduce([total]), "sum what they keep", total)
    return total.to(torch.float32)


def gather(among: Communicator, data: bytes) -> list[bytes]:
    """Return the bytes that every rank gives, of any length, in rank order."""
    purpose = "tell each other what they have seen"
    lengths = [int(length) for length in _counts(among, [len(data)], purpose)]
    own = torch.frombuffer(bytearray(data.ljust(max(1, *lengths))), dtype=torch.uint8)
    padded = allgather(among, own, purpose)
    return [bytes(each[:length].numpy()) for each, length in zip(padded, lengths, strict=True)]


def given_by(among: Communicator, root: int, data: bytes) -> bytes:
    """Return the ``data`` of rank ``root``, of any length; that of other ranks is ignored."""
    purpose = "go on from what they have kept"
    own = data if among.rank == root else b""
    length = max(int(each) for each in _counts(among, [len(own)], purpose))
    found = torch.frombuffer(bytearray(own.ljust(max(length, 1), b"\0")), dtype=torch.uint8)
    among.run_together(lambda group: group.allreduce([found]), purpose, found)  # 0 on all but one
    return bytes(found[:length].numpy())


def broadcast(among: Communicator, root: int, values: torch.Tensor) -> None:
    """Copy ``values`` of rank ``root``, of any shape, contiguous and on the CPU, to those of the others, in place."""
    if among.size > 1:
        options = dist.BroadcastOptions()
        options.rootRank = root
        among.run_together(lambda group: group.broadcast([values], options), "begin with the same values", values)


def gather_equal(among: Communicator, data: bytes) -> list[bytes]:
    """Return the bytes that every rank gives, in rank order, like ``gather`` but of equal lengths."""
    own = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return [bytes(each.numpy()) for each in allgather(among, own, "share memory")]


def exchange(among: Communicator, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the bytes that every rank gives this one, in rank order; ``pieces`` [bytes] uint8 has one for each."""
    if among.size == 1:
        return list(pieces)
    lengths = torch.tensor([len(piece) for piece in pieces], dtype=torch.int64, device="cpu")
    coming = _all_to_all(among, lengths, [1] * among.size, [1] * among.size)
    found = _all_to_all(among, torch.cat(list(pieces)), lengths.tolist(), coming.tolist())
    return list(torch.tensor_split(found, coming.cumsum(0).tolist()[:-1]))


def _all_to_all(among: Communicator, own: torch.Tensor, going: list[int], coming: list[int]) -> torch.Tensor:
    """Return the elements for this rank, one rank after another; ``going`` are the numbers given to each of ``own``."""
    found = own.new_empty(sum(coming))
    purpose = "exchange what they asked each other for"
    among.run_together(lambda group: group.alltoall_base(found, own, coming, going), purpose, (own, found))
    return found


def allreduce_max(
    among: Communicator, values: Sequence[float], purpose: str = "find the greatest of their numbers"
) -> list[float]:
    """Return the greatest of each of ``values`` over the ranks, which all give as many and have met at return."""
    of_ranks = allgather(among, torch.tensor(values, dtype=torch.float64, device="cpu"), purpose)
    greatest: list[float] = torch.stack(of_ranks).amax(dim=0).tolist()
    return greatest


def _counts(among: Communicator, own: list[int], purpose: str) -> list[torch.Tensor]:
    return allgather(among, torch.tensor(own, dtype=torch.int64, device="cpu"), purpose)


def allgather(among: Communicator, own: torch.Tensor, purpose: str, seconds: float | None = None) -> list[torch.Tensor]:
    """Return the tensors that the ranks give, in rank order; all of one shape and dtype."""
    of_ranks = [torch.empty_like(own) for _ in range(among.size)]
    among.run_together(lambda group: group.allgather([of_ranks], [own]), purpose, (own, of_ranks), seconds)
    return of_ranks
