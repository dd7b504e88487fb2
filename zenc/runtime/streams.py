"""Streams of a GPU's calls: the current one or one of zenc's own, and tensors that cross between them.

A call that its caller waits for runs on the caller's current stream. One that goes on meanwhile runs on a stream of its
own, behind what the caller's had been given when it was made. The allocator must know of every stream that uses a
tensor, or it gives the memory to others too early.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


def on_stream(call: Callable[[], T], tensor: torch.Tensor, asynchronous: bool) -> Callable[[], T]:
    """``call`` on the right stream of the device of ``tensor``, of any shape, whichever thread runs it."""
    if not tensor.is_cuda:
        return call
    device, current = tensor.device, torch.cuda.current_stream(tensor.device)
    stream = _own_stream(device) if asynchronous else current
    ready = current.record_event()

    def run() -> T:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            stream.wait_event(ready)
            used_by(tensor, stream)
            return call()

    return run


@cache
def _own_stream(device: torch.device) -> torch.cuda.Stream:
    return new_stream(device)


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of the GPU ``device``; torch leaves its constructor untyped."""
    made: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream
    return made(device)


def record_on_current_stream(result: torch.Tensor) -> torch.Tensor:
    """``result``, of any shape, of a call that has ended, for use on the current stream."""
    if result.is_cuda:
        used_by(result, torch.cuda.current_stream(result.device))
    return result


def used_by(tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Tell the allocator that ``stream`` uses ``tensor``, of any shape."""
    for piece in (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,):
        piece.record_stream(stream)
