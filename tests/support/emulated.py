"""Ranks as threads of one process that run call sequences of the CUDA target, over the emulator unless told otherwise.

with Emulated(plan, size) as ranks:
    results = ranks.run(tensors)            # Result or error of each rank
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from tests.emulator.build import MODES, compiled
from tests.emulator.libraries import Libraries
from tests.gpu.machine import WARNINGS, Machine, emulator
from zenc.codegen.call_program import CODE, call_program
from zenc.codegen.render import headers, include_dirs, render, templates_dir
from zenc.plan.ir import Plan
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lower import lower_all
from zenc.runtime.call.layout import Layout, contribution_of, layout_of, sparse_result
from zenc.runtime.gpu.call_args import ALLOCATE, CallArgs, failure_of
from zenc.runtime.gpu.library import INTERPRETER, CallLibrary
from zenc.runtime.gpu.partition import DevicePartitions, Words, has_tables
from zenc.wire.constants import DTYPE_NUMBERS, CallOutcome
from zenc.wire.formats import format_costs

DEADLINE = 60.0
STRICT = ("-std=c++17", "-O0", "-g1", "-fno-exceptions", "-fno-rtti", *WARNINGS, "-shared", "-fPIC")
"""Compiler options of units here: half the cost of those that run."""
POOL = 1 << 24
"""Bytes of a rank that shares its device."""
ALIGNMENT = 256
_THREADS = ThreadPoolExecutor(max_workers=16)


@cache
def interpreter() -> CallLibrary:
    """Compile the interpreter of tables without warnings, or find it in the cache."""
    return compiled_unit((templates_dir() / "cuda" / "host" / INTERPRETER).read_text("utf-8"))


def compiled_unit(code: str) -> CallLibrary:
    """Compile a unit of call sequences without warnings, or find it in the cache."""
    return CallLibrary(compiled_host({CODE: code}))


def compiled_host(sources: Mapping[str, str]) -> Path:
    """Compile host code in C++ without warnings, for the sanitizer that kernels are compiled for."""
    watched = [flag for flag in MODES[os.environ.get("EMULATOR_MODE", "plain")] if "sanitize" in flag]
    command = [*STRICT, *watched, *(f"-I{path}" for path in include_dirs("cuda")), *sorted(sources)]
    return compiled(command, {**headers("cuda"), **sources}, sources)


@lru_cache(maxsize=256)
def programs_of(plan: Plan, size: int) -> tuple[RankProgram, ...]:
    return lower_all(plan, size)


class Device:
    """A rank's memory and stream on a device, used by one thread at a time.

    Ranks that share a device allocate everything first: an allocation may wait for all work on the device, and so for
    ranks that wait for this one.
    """

    def __init__(self, rank: int, machine: Machine | None = None) -> None:
        machine = machine or emulator()
        self.ordinal, self.libraries = machine.device(rank), Libraries(machine.cuda)
        self.use()
        self.stream = self.libraries.new("cuStreamCreate", 1)
        self.pool = self.libraries.new("cuMemAlloc_v2", POOL) if machine.shared else None
        self.used = 0
        self.allocated: list[int] = []
        self.left: int | None = None
        """Allocations left to calls; None: any number."""
        self.asked = 0
        """Allocations that calls have made."""

    def use(self) -> None:
        self.libraries.make_current(self.ordinal)

    def allocate(self, size: int) -> int:
        """Allocate memory that lives until ``free_all``."""
        self.use()
        if self.pool is not None:
            return self._allocate_of(self.pool, size)
        self.allocated.append(self.libraries.new("cuMemAlloc_v2", max(size, 1)))
        return self.allocated[-1]

    def _allocate_of(self, pool: int, size: int) -> int:
        first, self.used = self.used, self.used + -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        assert self.used <= POOL, f"the tests need more than {POOL} bytes a rank"
        return pool + first

    def allocate_for_call(self, size: int) -> int:
        """Allocate memory for a call, or return 0 if nothing is left."""
        self.asked += 1
        if self.left is not None:
            self.left -= 1
        return 0 if self.left is not None and self.left < 0 else self.allocate(size)

    def allocate_like(self, tensor: torch.Tensor, values_before: int) -> int:
        """Allocate memory for ``tensor``, behind some more of its values, as a view of a bucket lies."""
        size = tensor.element_size()
        return self.allocate((values_before + tensor.numel()) * size) + values_before * size

    def copy_in(self, tensor: torch.Tensor, values_before: int = 0) -> int:
        """Copy ``tensor`` to the device, behind some more values."""
        address = self.allocate_like(tensor, values_before)
        size = tensor.numel() * tensor.element_size()
        self.libraries.copy(address, tensor.contiguous().data_ptr(), size, self.stream)
        return address

    def copy_bytes_in(self, source: int, size: int) -> int:
        address = self.allocate(size)
        self.libraries.copy(address, source, size, self.stream)
        return address

    def copy_out(self, address: int, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.numel() * tensor.element_size()
        self.libraries.copy(tensor.data_ptr(), address, size, self.stream)
        return tensor

    def free_all(self) -> None:
        self.libraries.call("cuStreamSynchronize", self.stream)
        for address in self.allocated:
            self.libraries.call("cuMemFree_v2", address)
        self.allocated.clear()
        self.used = 0

    def close(self) -> None:
        self.libraries.call("cuStreamDestroy_v2", self.stream)
        if self.pool is not None:
            self.libraries.call("cuMemFree_v2", self.pool)


@dataclass
class Result:
    """The result of a rank's call, and its counts."""

    tensor: torch.Tensor
    counts_in: list[int]
    counts_out: list[int]
    call: CallArgs


class Emulated:
    """The ranks of one group; ``deadline`` in seconds bounds every wait.

    They play tables, of ``programs`` or of ``plan``; or, where a ``unit`` comes without any, its compiled sequences.
    """

    def __init__(
        self,
        plan: Plan,
        size: int,
        deadline: float = DEADLINE,
        programs: Sequence[RankProgram] = (),
        unit: CallLibrary | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.plan, self.size, self.deadline = plan, size, deadline
        self.machine = machine or emulator()
        self.unit, self.programs = unit or interpreter(), programs or (() if unit else programs_of(plan, size))
        self.unit.bind(self.machine.cuda, self.machine.nccl)
        self.image = self.machine.image(render(type(plan.mapping), "cuda"))
        self.numbers = itertools.count(1)

    def __enter__(self) -> Emulated:
        id = self.unit.unique_id() if self.size > 1 else None
        self.ranks = self.each(lambda rank: _Rank(self, id, rank))
        return self

    def __exit__(self, *_: object) -> None:
        self.each(lambda rank: self.ranks[rank].close())

    def fail_on(self, faults: str) -> None:
        """Have calls fail as ``Libraries.fail_on`` does."""
        self.ranks[0].device.libraries.fail_on(faults)

    def each(self, work: Callable[[int], Any]) -> list[Any]:
        return [done.result() for done in [_THREADS.submit(work, rank) for rank in range(self.size)]]

    def run(self, tensors: list[torch.Tensor], op: str = "sum", **changes: Any) -> list[Any]:
        """Run ``all_reduce`` on all ranks; return a Result of each, or its error.

        ``changes`` name fields of the Call and give a value a rank.
        """
        number = next(self.numbers)

        def one(rank: int) -> Any:
            changed = {name: values[rank] for name, values in changes.items()}
            return self.ranks[rank].all_reduce(tensors[rank], number, op, changed)

        return self.each(one)


class _Rank:
    def __init__(self, group: Emulated, id: bytes | None, rank: int) -> None:
        self.group, self.rank = group, rank
        self.device = Device(rank, group.machine)
        self.program = group.unit.load_program(call_program(group.programs[rank]).words) if group.programs else None
        self.kernels = group.unit.load_kernels(group.image, has_tables=has_tables(group.plan.mapping))
        self.communicator = group.unit.open_communicator(id, group.size, rank, group.deadline)

    def close(self) -> None:
        self.device.use()
        self.group.unit.close_communicator(self.communicator)
        self.device.close()
        self.group.unit.unload_kernels(self.kernels)
        if self.program is not None:
            self.group.unit.unload_program(self.program)

    def all_reduce(self, tensor: torch.Tensor, number: int, op: str, changed: dict[str, Any]) -> Any:
        self.device.use()
        layout = layout_of(tensor, self.group.plan.unit)
        with self._freed():
            return self._called(tensor, layout, number, op, changed)

    @contextlib.contextmanager
    def _freed(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.device.free_all()

    def _called(self, tensor: torch.Tensor, layout: Layout, number: int, op: str, changed: dict[str, Any]) -> Any:
        device, parts = self.device, self.group.plan.parts(self.group.size)
        given = contribution_of(tensor, layout)
        cut = DevicePartitions(self.group.plan.mapping, parts, self.group.unit, self._upload).of(
            layout.units, layout.width
        )
        counts = [(ctypes.c_int64 * parts)() for _ in range(2)]
        call = CallArgs(
            number=number,
            signature=7,
            units=layout.units,
            width=layout.width,
            dtype=DTYPE_NUMBERS[layout.dtype_name],
            ids=None if given.unit_ids is None else device.copy_in(given.unit_ids),
            n=0 if given.unit_ids is None else given.unit_ids.numel(),
            values=device.copy_in(given.values, number % 4),
            divisor=self.group.size if op == "mean" else 1,
            dense_out=None if layout.is_sparse else device.allocate_like(tensor, number % 4),
            kernels=self.kernels,
            program=self.program,
            communicator=self.communicator,
            stream=device.stream,
            allocate=ALLOCATE(lambda _, size: device.allocate_for_call(size)),
            deadline=int(self.group.deadline * 1e6),
            costs=tuple(format_costs(self.group.plan.link, gpu=True)),
            counts_in=ctypes.addressof(counts[0]),
            counts_out=ctypes.addressof(counts[1]),
        )
        cut.fill(call)
        for name, value in changed.items():
            setattr(call, name, value)
        if self.group.unit.all_reduce(call) is not CallOutcome.DONE:
            return failure_of(call, self.group.plan.scheme)
        return Result(self._result(tensor, layout, call), *(list(each) for each in counts), call)

    def _upload(self, words: Words) -> tuple[int, object]:
        """Upload to memory that is freed after the call."""
        return self.device.copy_bytes_in(ctypes.addressof(words), ctypes.sizeof(words)), None

    def _result(self, tensor: torch.Tensor, layout: Layout, call: CallArgs) -> torch.Tensor:
        device = self.device
        if not layout.is_sparse:
            return device.copy_out(call.dense_out, torch.empty_like(tensor.contiguous()))
        ids = torch.empty(call.count_out, dtype=torch.int64)
        rows = torch.empty(call.count_out, layout.width, dtype=layout.dtype)
        if call.count_out:
            device.copy_out(call.ids_out, ids)
            device.copy_out(call.values_out, rows)
        return sparse_result(ids, rows, layout)
