"""Plain data as bytes for other ranks: JSON, and the tensors in it behind that; nothing is pickled.

bytes = length of text: u64   text: JSON   values of each tensor, one after another
tensor in text = {"$tensor": [dtype, shape, place of its values]}
"""

from __future__ import annotations

import json
import struct
from typing import Any

import torch

LENGTH = struct.Struct("<Q")
MARK = "$tensor"


def packed(data: Any) -> bytes:
    """Return ``data`` of JSON and tensors of any shape, as bytes; tuples become lists."""
    values = bytearray()

    def placed(tensor: torch.Tensor) -> dict[str, Any]:
        flat, place = tensor.detach().cpu().contiguous(), len(values)
        values.extend(flat.reshape(-1).view(torch.uint8).numpy().tobytes())
        return {MARK: [str(flat.dtype).removeprefix("torch."), list(flat.shape), place]}

    text = json.dumps(data, default=placed).encode()
    return LENGTH.pack(len(text)) + text + values


def unpacked(data: bytes) -> Any:
    """Return the data that was ``packed``; its tensors have memory of their own."""
    (length,) = LENGTH.unpack_from(data)
    values = memoryview(bytearray(data))[LENGTH.size + length :]

    def read(found: dict[str, Any]) -> Any:
        if found.keys() != {MARK}:
            return found
        name, shape, place = found[MARK]
        tensor = torch.empty(shape, dtype=getattr(torch, name), device="cpu")
        size = tensor.numel() * tensor.element_size()
        if size:
            tensor.view(-1).view(torch.uint8).copy_(torch.frombuffer(values[place : place + size], dtype=torch.uint8))
        return tensor

    return json.loads(data[LENGTH.size : LENGTH.size + length], object_hook=read)
