"""Agreement of all ranks of a group, each of which brings its options, or the error that it failed with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import torch

from zenc.common.wording import count
from zenc.errors import Diagnostic, SynchronisationError, ZencError
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import allgather, gather

REQUEST_BYTES = 1024
"""The size of the requests that ranks exchange before they go on together, the same in all versions."""


Options: TypeAlias = Mapping[str, str]
"""The options that decide what a rank sends: their names, as users know them, and their values as texts."""
MOST_SHOWN = 8
"""Most differing options whose values are shown."""
LONGEST_SHOWN = 160
"""Most characters of a value that are shown, from where it begins to differ."""
_OF_SCHEMES = ("scheme", "params", "plan", "averaging")

T = TypeVar("T")


class JoinRequest(NamedTuple):
    """Request of a rank to go on together, with the options ``told`` or its ``error``; it ``keeps`` a state, or not."""

    told: str
    error: str = ""
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class GroupAgreement:
    """An agreement of the ranks of ``communicator``, which come to it within ``deadline`` seconds.

    All ranks come at the same place among their calls: between two of them, or within one.
    """

    communicator: Communicator
    deadline: float

    def tell(self, failure: Exception) -> None:
        """Let the other ranks fail, with the name of this one."""
        try:
            self.reach({}, in_a_line(failure))
        except ZencError as told:  # this rank's own error says more, unless rank 0 has the same
            if isinstance(failure, ZencError) and self.communicator.rank != 0:
                failure.shown_by_rank_0 = f"rank 0: {in_a_line(failure)}" in told.diagnostics[0].notes

    def introduce(self, told: str) -> None:
        """Tell every rank this one's zenc, before all else, in a message that is alike in all versions.

        Raises SynchronisationError (``different-versions``) on all of them if they differ.
        """
        requests = self._told_by_all(JoinRequest(told))
        if notes := _notes_of_difference(requests):
            first = requests[0].told
            other = next(rank for rank, request in enumerate(requests) if request.told != first)
            message = f"rank 0 runs {first}, and rank {other} {requests[other].told}"
            help = "install the same zenc on all hosts, and start all ranks with the same environment"
            raise self._raised_by_all(Diagnostic("different-versions", message, notes=notes, help=help))

    def reach(self, options: Options, error: str = "", keeps: bool = False) -> bool:
        """Tell every rank the ``options`` with which this one goes on, or the ``error`` that it failed with.

        Returns whether any of them ``keeps`` something of an earlier group, to go on from. Raises SynchronisationError
        on all of them if one has failed (``peer-failed``), or if they differ: ``different-schemes``,
        ``different-profilers`` or ``different-options``, by the first option that does.
        """
        return self.communicator.worker.within(lambda: self._reached(options, error, keeps))

    def obtained(self, obtain: Callable[[], T], told: Callable[[T], Options], keeps: bool = False) -> tuple[T, bool]:
        """Return the result of ``obtain``, once all ranks have theirs with equal options ``told``, and ``reach``'s.

        Raises what ``obtain`` does here, which the other ranks hear of.
        """
        try:
            found = obtain()
            options = told(found)
        except Exception as failure:
            self.tell(failure)
            raise
        return found, self.reach(options, keeps=keeps)

    def _reached(self, options: Options, error: str, keeps: bool) -> bool:
        """Compare digests of the ranks' options, which are exchanged where these differ; return as ``reach`` does."""
        text = json.dumps(options).encode()
        requests = self._told_by_all(JoinRequest(hashlib.sha256(text).hexdigest(), error, keeps))
        if len({request.told for request in requests}) > 1:
            given = [json.loads(each) for each in gather(self.communicator, text)]
            raise self._raised_by_all(difference_of(given))
        return any(request.keeps for request in requests)

    def all(self, holds: bool, error: str = "") -> bool:
        """Return whether something ``holds`` on all ranks.

        Raises SynchronisationError on all if one has an ``error``.
        """
        requests = self._told_by_all(JoinRequest(str(holds), error))
        return {request.told for request in requests} == {str(True)}

    def broadcast(self, nccl_id: bytes) -> bytes:
        """Return the ``nccl_id`` of rank 0, for all ranks; raises SynchronisationError as ``all`` does."""
        return bytes.fromhex(self._told_by_all(JoinRequest(nccl_id.hex()))[0].told)

    def _told_by_all(self, request: JoinRequest) -> list[JoinRequest]:
        """Return the ``request`` of each rank; raises SynchronisationError (``peer-failed``) if one has an ``error``.

        Each request is at most ``REQUEST_BYTES`` long, as JSON.
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
        error = SynchronisationError(diagnostic)
        error.shown_by_rank_0 = self.communicator.rank != 0
        return error


def difference_of(given: Sequence[Options]) -> Diagnostic:
    """Return the diagnostic of ranks that were ``given`` different options: their names, and each rank's value."""
    names = dict.fromkeys(name for options in given for name in options)
    differing = [name for name in names if len({options.get(name) for options in given}) > 1]
    said, *others = [_who_has_which(name, given) for name in differing[:MOST_SHOWN]] or ["their order"]
    more = [f"and {count(len(differing) - MOST_SHOWN, 'other option')}"] if len(differing) > MOST_SHOWN else []
    notes, first = (*others, *more), differing[0] if differing else ""
    if first in _OF_SCHEMES:
        help = "load the same scheme, with the same parameters, in the same order"
        return Diagnostic("different-schemes", f"the ranks hold different schemes: {said}", notes=notes, help=help)
    if first == "profiler":
        help = "give all ranks a profiler with the same numbers, or none of them"
        message = f"the ranks would profile different steps: {said}"
        return Diagnostic("different-profilers", message, notes=notes, help=help)
    help = "give all ranks the same: each decides by it what it sends, and when"
    return Diagnostic("different-options", f"the ranks were given different options: {said}", notes=notes, help=help)


def _who_has_which(name: str, given: Sequence[Options]) -> str:
    """Return ``name`` and its values with the ranks that have them, from where the values begin to differ."""
    ranks = _ranks_by(options.get(name, "not given") for options in given)
    letters = enumerate(zip(*ranks, strict=False))
    alike = next((place for place, each in letters if len(set(each)) > 1), min(map(len, ranks)))
    first = alike - 20 if alike > LONGEST_SHOWN // 2 else 0
    return f"{name} is " + ", and ".join(f"{_shown(text, first)} on {_ranks(who)}" for text, who in ranks.items())


def _ranks_by(told: Iterable[str]) -> dict[str, list[int]]:
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(told):
        ranks.setdefault(text, []).append(rank)
    return ranks


def _shown(text: str, first: int) -> str:
    part = text[first : first + LONGEST_SHOWN]
    return ("..." if first else "") + (part or "nothing") + ("..." if len(text) > first + LONGEST_SHOWN else "")


def _ranks(who: Sequence[int]) -> str:
    return f"{'rank' if len(who) == 1 else 'ranks'} {', '.join(map(str, who))}"


def _notes_of_difference(requests: list[JoinRequest]) -> tuple[str, ...]:
    ranks = _ranks_by(request.told for request in requests)
    return tuple(f"ranks {', '.join(map(str, who))}: {text}" for text, who in ranks.items()) if len(ranks) > 1 else ()


def _read_request(data: bytes, rank: int) -> JoinRequest:
    try:
        told, error, *keeps = json.loads(data)
        return JoinRequest(str(told), str(error), keeps == [True])
    except (ValueError, TypeError) as error:
        message = f"rank {rank} runs another version of zenc, or no zenc at all"
        raise SynchronisationError(Diagnostic("different-versions", message)) from error


def in_a_line(error: Exception) -> str:
    """Return an error in a line for other ranks: a few hundred bytes at most."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ZencError) and error.diagnostics:
        text = error.diagnostics[0].message
    return " ".join(text.encode("ascii", "replace").decode().split())[:400]
