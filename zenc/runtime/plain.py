"""Plain tensors, whose values lie in memory of their own, and plain surroundings, in which torch makes such tensors.

    plain = strided, with memory | sparse COO of plain indices and values

Kernels take addresses: a tensor without one, or whose memory means something else, must not come to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
from torch._C import DisableTorchFunction, _len_torch_dispatch_stack, _len_torch_function_stack
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from zenc.errors import Diagnostic, TensorError

DEVICES = ("cpu", "cuda")
_OF_META = "a meta tensor has no values; make the model real first: model.to_empty(device=...), then load its weights"

T = TypeVar("T")
_FUNCTIONAL_COLLECTIVES = "torch.distributed._functional_collectives"
_COMMON = (torch.Tensor, torch.nn.Parameter)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor``, of any shape, or the result of a functional collective that it stands for, once it is there.

    A tensor made in inference mode is changed as any other. Raises TensorError for a tensor without memory of its
    own, such as DTensor (``not-plain``), and ``unsupported-device``, ``unsupported-layout``, ``unsupported-dtype``.
    """
    if type(tensor) not in _COMMON:
        tensor = _waited(tensor)
    if why := _why_not_plain(tensor):
        raise TensorError(Diagnostic("not-plain", f"a tensor of class {type(tensor).__name__} {why[0]}", help=why[1]))
    _ensure_supported(tensor)
    return _outside_inference(tensor) if tensor.is_inference() and tensor.layout is torch.strided else tensor


def is_ordinary(given: Any) -> bool:
    """Return whether ``given`` is, beyond doubt and at a glance, a plain dense tensor that may be summed in place."""
    if type(given) not in _COMMON or given.layout is not torch.strided or given.device.type not in DEVICES:
        return False
    if given.is_nested or given.is_quantized or given.is_neg() or given.is_inference():
        return False
    try:
        return given.is_contiguous() and (given.data_ptr() != 0 or not given.numel())
    except RuntimeError:  # functorch's have no memory of their own
        return False


def all_plain(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return each of ``tensors``, of any shapes, by ``plain``."""
    return [plain(each) for each in tensors]


def ensure_writable(tensor: torch.Tensor) -> None:
    """Raise TensorError (``overlapping-memory``) where elements of ``tensor``, dense and of any shape, share memory."""
    if tensor.layout is not torch.strided or not _overlaps(tensor):
        return
    message = f"elements of a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} share memory"
    help = "it can't have a sum in place: pass a copy, tensor.clone(memory_format=torch.contiguous_format)"
    raise TensorError(Diagnostic("overlapping-memory", message, help=help))


def in_plain_surroundings(function: Callable[[], T]) -> T:
    """Return the result of ``function``, run without the caller's torch modes: inference, fake, device.

    Without that, memory that zenc keeps would have a call's mode for ever.
    """
    modes = _len_torch_function_stack() or _len_torch_dispatch_stack()
    if not modes and not torch.is_inference_mode_enabled():
        return function()
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(DisableTorchFunction())
        stack.enter_context(torch.inference_mode(False))
        return function()


def _ensure_supported(tensor: torch.Tensor) -> None:
    if tensor.device.type not in DEVICES:
        message = f"all_reduce takes tensors on the CPU and on CUDA devices; this one is on {tensor.device}"
        help = "move it with .cpu() first" if not tensor.is_meta else _OF_META
        raise TensorError(Diagnostic("unsupported-device", message, help=help))
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        message = f"all_reduce takes dense and sparse COO tensors, not {tensor.layout}"
        raise TensorError(Diagnostic("unsupported-layout", message, help="convert it with .to_sparse_coo()"))
    if tensor.is_quantized:
        message = f"all_reduce sums numbers, not the codes of {tensor.dtype}"
        raise TensorError(Diagnostic("unsupported-dtype", message, help="pass tensor.dequantize()"))


def _waited(tensor: torch.Tensor) -> torch.Tensor:
    """Return the result of a functional collective, for which a tensor of its own class stands until its use."""
    module = sys.modules.get(_FUNCTIONAL_COLLECTIVES)
    if module is not None and isinstance(tensor, module.AsyncCollectiveTensor):
        waited: torch.Tensor = module.wait_tensor(tensor.elem)
        return waited
    return tensor


def _why_not_plain(tensor: torch.Tensor) -> tuple[str, str] | None:
    if tensor.is_meta or tensor.layout not in (torch.strided, torch.sparse_coo) or tensor.is_quantized:
        return None if type(tensor) in _COMMON or not _without_memory(tensor) else _NO_MEMORY
    if tensor.is_nested:
        return "has rows of several lengths", "sum its values, one after another: .values(), or .to_padded_tensor(0.0)"
    if tensor.layout is torch.sparse_coo:
        pieces = (tensor._indices(), tensor._values())
        return next((why for piece in pieces if (why := _why_not_plain(piece))), None)
    if _without_memory(tensor):
        return _ADVICE.get(type(tensor).__name__, _NO_MEMORY)
    if tensor.is_neg() and tensor.is_contiguous():  # else it is copied, which negates it
        return "has the negatives of its values in memory", "pass tensor.resolve_neg()"
    return None


_NO_MEMORY = "has no memory of its own", "pass the tensors that it is made of, or a plain copy"
_ADVICE = {
    "DTensor": ("has no memory of its own: a part of it lies on each rank", "pass its part: tensor.to_local()"),
    "FakeTensor": ("has no memory: it is fake", "call zenc outside FakeTensorMode, on tensors with values"),
    "Tensor": ("has no memory: it was freed, or functorch wraps it", "call zenc outside torch.func, on its tensors"),
}


def _without_memory(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor``, of any shape, has elements, and nowhere to keep them."""
    if type(tensor) not in _COMMON and is_traceable_wrapper_subclass(tensor):
        return True
    try:
        return bool(tensor.numel()) and tensor.data_ptr() == 0
    except RuntimeError:
        return tensor.layout is torch.strided


def _outside_inference(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of ``tensor``, of any shape, as a tensor that may be changed in any mode."""
    with torch.inference_mode(False):
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether elements of ``tensor``, strided and of any shape, share memory; exact."""
    if tensor.is_contiguous() or not tensor.numel():
        return False
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return _shares_an_address(dims)
        reach += stride * (size - 1)
    return False


def _shares_an_address(dims: list[tuple[int, int]]) -> bool:
    """Return whether two elements of dimensions ``dims``, stride and size, have one address."""
    addresses = torch.zeros(1, dtype=torch.int64, device="cpu")
    for stride, size in dims:
        steps = torch.arange(size, dtype=torch.int64, device="cpu") * stride
        addresses = (addresses[:, None] + steps).reshape(-1)
    ordered = addresses.sort().values
    return bool((ordered[1:] == ordered[:-1]).any())
