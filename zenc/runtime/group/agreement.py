"""Agreement of all ranks of a group, each of which comes with what it has, or with why it has failed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import torch

from zenc.errors import Diagnostic, SynchronisationError, ZencError
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import allgather

REQUEST_BYTES = 1024
"""Of what ranks tell each other before they go on together, the same in all versions."""


class JoinRequest(NamedTuple):
    """Request of a rank to go on together: with what is ``told``, or its ``error``; it ``keeps`` something, or not."""

    told: str
    error: str = ""
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class GroupAgreement:
    """An agreement of the ranks of ``communicator``, which come to it within ``deadline`` seconds.

    All at the same place among their calls: between two of them, or within one.
    """

    communicator: Communicator
    deadline: float

    def tell(self, failure: Exception) -> None:
        """Let the other ranks fail with the name of this one."""
        try:
            self.reach("", in_a_line(failure))
        except ZencError as told:  # this rank's own error says more, unless rank 0 has the same
            if isinstance(failure, ZencError) and self.communicator.rank != 0:
                failure.shown_by_rank_0 = f"rank 0: {in_a_line(failure)}" in told.diagnostics[0].notes

    def introduce(self, told: str) -> None:
        """Tell every rank of this one's zenc, before anything else is said: a message alike in all versions.

        Raises SynchronisationError (``different-versions``) on all of them if they differ.
        """
        requests = self._told_by_all(JoinRequest(told))
        if notes := _notes_of_difference(requests):
            first = requests[0].told
            other = next(rank for rank, request in enumerate(requests) if request.told != first)
            message = f"rank 0 runs {first}, and rank {other} {requests[other].told}"
            help = "install the same zenc on all hosts, and start all ranks with the same environment"
            raise self._raised_by_all(Diagnostic("different-versions", message, notes=notes, help=help))

    def reach(self, scheme: str, error: str = "", keeps: bool = False) -> bool:
        """Tell every rank which ``scheme`` this one is about to run, or with which ``error`` it has failed.

        Whether any of them ``keeps`` something of an earlier group, to go on from. Raises SynchronisationError on all
        of them if one has failed (``peer-failed``), or if they differ.
        """
        requests = self._told_by_all(JoinRequest(scheme, error, keeps))
        if notes := _notes_of_difference(requests):
            help = "load the same scheme, with the same parameters, in the same order"
            message = "the ranks hold different schemes"
            raise self._raised_by_all(Diagnostic("different-schemes", message, notes=notes, help=help))
        return any(request.keeps for request in requests)

    def on_profiling(self, how: str, keeps: bool = False) -> bool:
        """Show every rank when this one profiles; whether any of them ``keeps`` something of an earlier group.

        Raises SynchronisationError on all of them if they differ.
        """
        requests = self._told_by_all(JoinRequest(how, keeps=keeps))
        if notes := _notes_of_difference(requests):
            help = "give all ranks a profiler with the same numbers, or none of them"
            message = "the ranks would profile different steps"
            raise self._raised_by_all(Diagnostic("different-profilers", message, notes=notes, help=help))
        return any(request.keeps for request in requests)

    def all(self, holds: bool, error: str = "") -> bool:
        """Whether something ``holds`` on all ranks; raises SynchronisationError on all if one has an ``error``."""
        requests = self._told_by_all(JoinRequest(str(holds), error))
        return {request.told for request in requests} == {str(True)}

    def broadcast(self, nccl_id: bytes) -> bytes:
        """The ``nccl_id`` of rank 0, for all ranks; raises SynchronisationError as ``all``."""
        return bytes.fromhex(self._told_by_all(JoinRequest(nccl_id.hex()))[0].told)

    def _told_by_all(self, request: JoinRequest) -> list[JoinRequest]:
        """The ``request`` of each rank; raises SynchronisationError (``peer-failed``) if one has an ``error``.

        Each is at most ``REQUEST_BYTES`` long, as JSON.
        """
        text = json.dumps(request if request.keeps else request[:2]).encode()[:REQUEST_BYTES].ljust(REQUEST_BYTES)
        own, among = torch.frombuffer(bytearray(text), dtype=torch.uint8), self.communicator
        texts = among.worker.within(lambda: allgather(among, own, "load a scheme", self.deadline))
        requests = [_read_request(bytes(other.tolist()), rank) for rank, other in enumerate(texts)]
        failed = {rank: request.error for rank, request in enumerate(requests) if request.error}
        if failed:
            notes = tuple(f"rank {rank}: {error}" for rank, error in failed.items())
            ranks = ", ".join(map(str, failed))
            message = f"rank {ranks} could not load its scheme"
            help = "its own output says what to do"
            raise self._raised_by_all(Diagnostic("peer-failed", message, notes=notes, help=help))
        return requests

    def _raised_by_all(self, diagnostic: Diagnostic) -> SynchronisationError:
        """An error that all ranks raise: rank 0 shows it whole."""
        error = SynchronisationError(diagnostic)
        error.shown_by_rank_0 = self.communicator.rank != 0
        return error


def _notes_of_difference(requests: list[JoinRequest]) -> tuple[str, ...]:
    """A line for each different thing that is told, with the ranks that tell it; none if all tell the same."""
    ranks: dict[str, list[int]] = {}
    for rank, request in enumerate(requests):
        ranks.setdefault(request.told, []).append(rank)
    return tuple(f"ranks {', '.join(map(str, who))}: {text}" for text, who in ranks.items()) if len(ranks) > 1 else ()


def _read_request(data: bytes, rank: int) -> JoinRequest:
    try:
        told, error, *keeps = json.loads(data)
        return JoinRequest(str(told), str(error), keeps == [True])
    except (ValueError, TypeError) as error:
        message = f"rank {rank} runs another version of zenc, or no zenc at all"
        raise SynchronisationError(Diagnostic("different-versions", message)) from error


def in_a_line(error: Exception) -> str:
    """An error in a line for other ranks: a few hundred bytes at most."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ZencError) and error.diagnostics:
        text = error.diagnostics[0].message
    return " ".join(text.encode("ascii", "replace").decode().split())[:400]
