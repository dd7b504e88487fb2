"""Messages of ranks of this process over the emulator's NCCL: a digest for each pair."""

from __future__ import annotations

import ctypes
from functools import cache

from tests.emulator.build import engine


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(engine()))
    library.emulatorMessages.restype = ctypes.c_uint64
    return library


def forget_messages() -> None:
    _library().emulatorForgetMessages()


def messages_among(size: int) -> dict[tuple[int, int], int]:
    """Return (from, to) -> a digest of all messages, of those pairs that sent any."""
    pairs = [(src, dst) for src in range(size) for dst in range(size)]
    digests = {pair: int(_library().emulatorMessages(*pair)) for pair in pairs}
    return {pair: digest for pair, digest in digests.items() if digest}
