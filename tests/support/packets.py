"""Calls in which one packet is not what was sent, and what each rank makes of it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

import zenc
from tests.support.cases import sparse_tensor
from tests.support.local import collectives

DEADLINE, PATIENT = 0.15, 5.0
"""Seconds of a call: enough for an idle machine, and enough for any."""
Change = Callable[[torch.Tensor], torch.Tensor | None]
_POOL = ThreadPoolExecutor(max_workers=16)


class Damage:
    """A change of the ``turn``-th packet of a call, which may drop it; ``done`` says whether the packet came."""

    def __init__(self, turn: int, change: Change) -> None:
        self.turn, self.change = turn, change
        self.count, self.lock, self.done = 0, threading.Lock(), False

    def __call__(self, packet: torch.Tensor) -> torch.Tensor | None:
        with self.lock:
            self.count += 1
            if self.count - 1 != self.turn:
                return packet
        self.done = True
        return self.change(packet)


def flipped(at: int, flip: int) -> Change:
    """Return a change that flips the bits ``flip`` of the byte ``at`` of a packet, if it has one."""

    def change(packet: torch.Tensor) -> torch.Tensor:
        if at < packet.numel():
            packet[at] ^= flip
        return packet

    return change


def outcome(artifact: zenc.Artifact, size: int, damage: Damage, *ids: str) -> list[torch.Tensor] | None:
    """Return the results of a call, or None if a rank has noticed the damage.

    Some rank then fails with one of ``ids``; others miss what would have come from it, or have all that they need. With
    no ``ids`` a call may end by its deadline alone.
    """
    for deadline in (DEADLINE, PATIENT):
        results, told = _ended(artifact, size, damage, deadline)
        if results is not None or not ids or set(told) != {"deadline"}:
            break
        damage.count, damage.done = 0, False
    assert set(told) <= {"deadline", *ids} and (results is not None or not ids or set(told) & set(ids)), told
    return results


def _ended(
    artifact: zenc.Artifact, size: int, damage: Damage, deadline: float
) -> tuple[list[torch.Tensor] | None, list[str]]:
    """Return the results of a call, or None and the ids of the ranks' errors."""
    inputs = [sparse_tensor("random", rank, size, 40, 3, torch.float32, 1) for rank in range(size)]
    ranks = collectives(artifact, size, deadline=deadline, on_send=damage)
    calls = [_POOL.submit(rank.all_reduce, tensor) for rank, tensor in zip(ranks, inputs, strict=True)]
    errors = [error for error in [call.exception() for call in calls] if error]
    if not errors:
        return [call.result() for call in calls], []
    for error in errors:
        assert isinstance(error, zenc.ZencError), error
    return None, [error.diagnostics[0].id for error in errors]


def right(artifact: zenc.Artifact, size: int) -> list[torch.Tensor]:
    """Return the results of the call without damage."""
    found, told = _ended(artifact, size, Damage(-1, lambda packet: packet), PATIENT)
    assert found is not None, told
    return found
