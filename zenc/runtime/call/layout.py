"""Tensors as units: the units of a torch tensor, and a result as a tensor again.

Layout = units x width x dtype, and the shape and layout to give back
Contribution = unit ids [n] int64 and values [n, width]          # sparse COO, coalesced or not
             | values [units, width]                             # dense
Exchangeable = torch.Tensor | an array with DLPack              # CuPy's, NumPy's
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
import torch.utils.dlpack
from torch._C import DisableTorchFunction, _is_tracing, _len_torch_dispatch_stack, _len_torch_function_stack
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from zenc.errors import Diagnostic, TensorError
from zenc.scheme.model import Unit

DTYPE_NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}
MOST_ELEMENTS = 1 << 62
LEGACY_STREAM = 1
"""CUDA's default stream in ``__dlpack__``, where 0 is ambiguous."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The cut of a tensor into ``units`` x ``width`` values, and the shape to give back.

    ``natural_width`` is the width of the tensor's own units; it differs from ``width`` only where the scheme's unit is
    not a COO tensor's own.
    """

    units: int
    width: int
    dtype: torch.dtype
    shape: torch.Size
    sparse_dim: int
    natural_width: int

    @property
    def dtype_name(self) -> str:
        """``f32``, ``f64``, ``f16`` or ``bf16``."""
        return DTYPE_NAMES[self.dtype]

    @property
    def nbytes(self) -> int:
        """The bytes of a dense tensor of this layout."""
        return self.units * self.width * self.dtype.itemsize

    @property
    def is_sparse(self) -> bool:
        """Return whether the tensor is sparse COO."""
        return self.sparse_dim > 0


@dataclass(slots=True)  # not frozen: one is made in every call
class Contribution:
    """A rank's input; ``unit_ids`` is None for a dense one. Both tensors are contiguous."""

    unit_ids: torch.Tensor | None
    values: torch.Tensor


def layout_of(tensor: torch.Tensor, unit: Unit) -> Layout:
    """Return the units [units, width] of ``tensor``; raises TensorError for one that can't be synchronised."""
    _ensure_supported(tensor)
    shape = tensor.shape
    if tensor.layout is torch.sparse_coo:
        sparse_dim = tensor.sparse_dim()
        natural_width = math.prod(shape[sparse_dim:])
    else:
        sparse_dim, natural_width = 0, 1
    row_width = math.prod(shape[1:])
    width = {Unit.AUTO: natural_width, Unit.ROW: row_width, Unit.ELEMENT: 1}[unit]
    total = _ensure_countable(shape)
    return Layout(total // width if width else 0, width, tensor.dtype, shape, sparse_dim, natural_width)


def _ensure_countable(shape: Sequence[int]) -> int:
    if (total := math.prod(shape)) >= MOST_ELEMENTS:
        message = f"a tensor of shape {tuple(shape)} has {total:,} elements; zenc counts to 2^62 - 1"
        raise TensorError(Diagnostic("tensor-too-large", message))
    return total


def _ensure_supported(tensor: torch.Tensor) -> None:
    if tensor.dtype not in DTYPE_NAMES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPE_NAMES)
        message = f"all_reduce sums {names}, signed integers and uint8, other calls {names}; this is {tensor.dtype}"
        raise TensorError(Diagnostic("unsupported-dtype", message))


class Exchangeable(Protocol):
    """A tensor of PyTorch, or an array of CuPy, NumPy or any library with DLPack (dmlc.github.io/dlpack)."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


def as_tensor(given: object) -> torch.Tensor:
    """Return ``given``, by ``plain``, or a tensor over the memory of a DLPack array, of its shape and dtype.

    The array's stream is ordered before the current one. Raises TensorError (``not-plain``), and (``not-a-tensor``) for
    anything else, and for arrays that may not be written or whose strides are negative, which torch can not share.
    """
    if isinstance(given, torch.Tensor):
        return plain(given)
    if not (hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__")):
        raise _not_a_tensor(f"this is of class {type(given).__name__}")
    if any(stride < 0 for stride in getattr(given, "strides", None) or ()):
        raise _not_a_tensor("this array has a negative stride", "pass a copy of it, and use the copy")
    try:
        return _shared(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise _not_a_tensor(f"this array of class {type(given).__name__} can't be shared: {error}") from error


def writable(given: Any) -> torch.Tensor:
    """Return ``given`` by ``as_tensor``, of any shape, to be changed in place; TensorError (``overlapping-memory``)."""
    if is_ordinary(given):  # a call of nothing but this is short
        tensor: torch.Tensor = given
        return tensor
    tensor = as_tensor(given)
    ensure_writable(tensor)
    return tensor


def _shared(array: Any) -> torch.Tensor:
    """Return a tensor over the memory of ``array``; one that may not be written has no unversioned capsule."""
    kind, index = array.__dlpack_device__()
    if kind != torch.utils.dlpack.DLDeviceType.kDLCUDA:
        return torch.utils.dlpack.from_dlpack(array.__dlpack__())
    if not torch.cuda.is_available():
        raise ValueError("it is in a GPU's memory, and this PyTorch has no GPU")
    stream = torch.cuda.current_stream(index).cuda_stream
    return torch.utils.dlpack.from_dlpack(array.__dlpack__(stream=stream or LEGACY_STREAM))


def _not_a_tensor(why: str, help: str = "") -> TensorError:
    message = f"all_reduce takes a torch.Tensor, or an array with DLPack; {why}"
    return TensorError(Diagnostic("not-a-tensor", message, help=help))


def contribution_of(tensor: torch.Tensor, layout: Layout) -> Contribution:
    """Return the unit ids [n] and values [n, width] of ``tensor``; they share its memory where they can."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not layout.sparse_dim:
        return Contribution(None, tensor.contiguous())
    ids, values = _linear(tensor._indices(), layout), tensor._values().contiguous()
    if layout.width == layout.natural_width:
        return Contribution(ids, values)
    return _finer(ids, values, layout) if layout.width == 1 else _coarser(ids, values, layout)


def without_units(shape: Sequence[int], sparse_dim: int) -> torch.Tensor:
    """Return a sparse tensor of ``shape`` and ``sparse_dim`` on the CPU, float32, in which nothing is present.

    Raises TensorError (``unsupported-layout``, ``tensor-too-large``) for a shape that no such tensor can have.
    """
    if not 1 <= sparse_dim <= len(shape) or any(extent < 0 for extent in shape):
        message = f"a sparse tensor can't have shape {tuple(shape)} with {sparse_dim} sparse dimensions"
        raise TensorError(Diagnostic("unsupported-layout", message))
    _ensure_countable(shape)
    ids = torch.empty(sparse_dim, 0, dtype=torch.int64, device="cpu")
    values = torch.empty(0, *shape[sparse_dim:], dtype=torch.float32, device="cpu")
    return torch.sparse_coo_tensor(ids, values, tuple(shape), check_invariants=False, device="cpu")


def in_units(layout: Layout) -> Layout:
    """Return the layout of a sparse tensor whose own units are those of ``layout``, and of the same shape.

    Raises TensorError (``unsupported-layout``) for a tensor without dimensions.
    """
    shape = layout.shape
    cuts = [dims for dims in range(1, len(shape) + 1) if math.prod(shape[dims:]) == layout.width]
    if not cuts:
        message = "a tensor without dimensions is one number: there are no units that ranks could own"
        raise TensorError(Diagnostic("unsupported-layout", message, help="sum it by all_reduce"))
    return replace(layout, sparse_dim=cuts[0], natural_width=layout.width)


def _linear(indices: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return COO indices [sparse_dim, n] as unit ids of the tensor's own cut, [n].

    With several dimensions each index is checked here, since one beyond its end would pass for a unit of the next row;
    the kernels check unit ids.
    """
    if layout.sparse_dim == 1:
        return indices[0].contiguous()
    ids = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for dimension, (extent, column) in enumerate(zip(layout.shape, indices, strict=False)):
        outside = (column < 0) | (column >= extent)
        if outside.any():
            raise _out_of_range(dimension, column, extent, int(outside.to(torch.uint8).argmax()))
        ids = ids * extent + column
    return ids


def _out_of_range(dimension: int, column: torch.Tensor, extent: int, position: int) -> TensorError:
    message = (
        f"index {int(column[position])}, at position {position}, is not one of the {extent} of dimension {dimension}"
    )
    return TensorError(Diagnostic("unit-out-of-range", message))


def _finer(ids: torch.Tensor, values: torch.Tensor, layout: Layout) -> Contribution:
    """Return units of a COO tensor with dense dimensions cut into single elements; all of them count as present."""
    width = layout.natural_width
    elements = (ids[:, None] * width + torch.arange(width, device=ids.device, dtype=torch.int64)).reshape(-1)
    return Contribution(elements, values.reshape(-1))


def _coarser(ids: torch.Tensor, values: torch.Tensor, layout: Layout) -> Contribution:
    """Return units of a COO tensor collected into the rows they lie in; the rest of such a row is +0.

    It works in host memory only: on a GPU ``index_add_`` adds the values of a unit in any order.
    """
    if ids.device.type != "cpu":
        message = f"units of {layout.natural_width} values are collected into rows on the CPU only"
        help = "use 'unit: auto' for such tensors, or move them with .cpu() first"
        raise TensorError(Diagnostic("unsupported-layout", message, help=help))
    per_row = layout.width // layout.natural_width
    rows, place = torch.unique(ids // per_row, return_inverse=True)
    wide = torch.float32 if layout.dtype.itemsize == 2 else layout.dtype
    collected = torch.zeros(rows.numel() * per_row, layout.natural_width, dtype=wide, device="cpu")
    collected.index_add_(0, place * per_row + ids % per_row, values.reshape(-1, layout.natural_width).to(wide))
    return Contribution(rows, collected.reshape(-1, layout.width).to(layout.dtype))


def sparse_result(unit_ids: torch.Tensor, values: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return a coalesced COO tensor like the input's, from ascending ``unit_ids`` [k] and ``values`` [k, width]."""
    if layout.width != layout.natural_width:
        unit_ids, values = _natural(unit_ids, values, layout)
    extents = layout.shape[: layout.sparse_dim]
    indices = unit_ids[None] if len(extents) == 1 else torch.stack(torch.unravel_index(unit_ids, extents))
    shape = (indices.shape[1], *layout.shape[layout.sparse_dim :])
    if values.shape != shape:
        values = values.reshape(shape)
    return coalesced(indices, values, layout.shape)


def coalesced(indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a coalesced COO tensor of ``shape`` with ``values`` [k, ...] at ``indices`` [dimensions, k], ascending."""
    where = values.device
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False, device=where)


def _natural(unit_ids: torch.Tensor, values: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a result in the scheme's units as one in the tensor's own."""
    width = layout.natural_width
    if layout.width > width:
        per_row = layout.width // width
        return (unit_ids[:, None] * per_row + torch.arange(per_row, device=unit_ids.device, dtype=torch.int64)).reshape(
            -1
        ), values
    own_ids, place = torch.unique(unit_ids // width, return_inverse=True)
    filled = torch.zeros(own_ids.numel() * width, dtype=layout.dtype, device=values.device)
    filled[place * width + unit_ids % width] = values.reshape(-1)
    return own_ids, filled


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
    _ensure_summable(tensor)
    return _outside_inference(tensor) if tensor.is_inference() and tensor.layout is torch.strided else tensor


def is_ordinary(given: Any) -> bool:
    """Return whether ``given`` is, beyond doubt and at a glance, a plain dense tensor that may be summed in place."""
    if type(given) not in _COMMON or given.layout is not torch.strided or given.device.type not in DEVICES:
        return False
    if given.is_nested or given.is_quantized or given.is_neg() or given.is_inference():
        return False
    if _is_tracing() or forward_ad._current_level >= 0:
        return False
    try:
        return given.is_contiguous() and (given.data_ptr() != 0 or not given.numel())
    except RuntimeError:  # functorch's have no memory of their own
        return False


def _is_followed(tensor: torch.Tensor) -> bool:
    """Return whether torch.jit records calls, or ``tensor``, of any shape, has a tangent."""
    unpacked: Callable[[torch.Tensor], Any] = forward_ad.unpack_dual
    return _is_tracing() or unpacked(tensor).tangent is not None


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


def _ensure_summable(tensor: torch.Tensor) -> None:
    if tensor.device.type not in DEVICES:
        message = f"all_reduce takes tensors on the CPU and on CUDA devices; this one is on {tensor.device}"
        help = "move it with .cpu() first" if not tensor.is_meta else _OF_META
        raise TensorError(Diagnostic("unsupported-device", message, help=help))
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        message = f"all_reduce takes dense and sparse COO tensors, not {tensor.layout}"
        raise TensorError(Diagnostic("unsupported-layout", message, help="convert it with .to_sparse_coo()"))
    if tensor.layout is torch.sparse_coo and not tensor.sparse_dim():
        message = "a sparse tensor without sparse dimensions has no units that an index tells apart"
        raise TensorError(Diagnostic("unsupported-layout", message, help="pass tensor.to_dense()"))
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
    if _is_followed(tensor):
        return "is followed by torch.jit.trace or forward-mode AD, which can't follow a sum", "call zenc outside of it"
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
    if tensor.numel() > 1 + sum(stride * (size - 1) for stride, size in dims):
        return True  # more elements than addresses; there may be too many to list
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
