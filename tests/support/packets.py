"""Calls in which one packet is not what was sent, and what each rank makes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

import zenc
from tests.support.cases import sparse_tensor
from tests.support.local import collectives

DEADLINE, PATIENT = 0.15, 5.0
"""Seconds of a call: enough on a machine that has nothing else to do, and on any."""
Change = Callable[[torch.Tensor], torch.Tensor | None]
_POOL = ThreadPoolExecutor(max_workers=16)


class Damage:
    """Changes the ``turn``-th packet of a call, or drops it; ``done`` says whether there was one."""

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
    """The packet with other bits at the byte ``at``, if it has one."""

    def change(packet: torch.Tensor) -> torch.Tensor:
        if at < packet.numel():
            packet[at] ^= flip
        return packet

    return change


def outcome(artifact: zenc.Artifact, size: int, damage: Damage, *ids: str) -> list[torch.Tensor] | None:
    """The results of a call, if no rank has noticed anything; else None.

    Some rank says what is wrong, by one of ``ids``; others miss what would have come from it, or have all they need.
    With no ``ids`` there is nothing wrong but what is missing.
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
    """The results of the call as it should be."""
    found, told = _ended(artifact, size, Damage(-1, lambda packet: packet), PATIENT)
    assert found is not None, told
    return found
