"""Call sequences of several plans in one unit, so that the headers, which are nearly all of it, are compiled once.

    sources = joined({"ring_4": render_sequences(...)["sequence.cpp"], ...})
    library = compiled([*flags, UNIT], ..., sources)
    JoinedSequence(library, "ring_4").all_reduce(call)

``unit_of_shipped(name, size)`` has those of all shipped schemes among ``SIZES`` ranks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.emulator.build import compiled
from tests.support.emulated import STRICT
from tests.support.shipped import cases, plan_of_shipped
from zenc.codegen.sequence_code import FILE, lowered, render_sequences
from zenc.codegen.templates import headers, include_dirs
from zenc.plan.ir import Plan
from zenc.runtime.gpu.call_args import CallArgs
from zenc.runtime.gpu.library import CallSequence
from zenc.wire.constants import CallOutcome

UNIT = "unit.cpp"
FIRST = "zenc_all_reduce"
"""What every generated unit calls its entry."""
SIZES = (1, 3, 8)


def joined(texts: Mapping[str, str]) -> dict[str, str]:
    """The files of a unit, of which ``UNIT`` is compiled, from the generated text of each entry's name."""
    lines = ['#include "zenc_host/call/entry.h"', '#include "zenc_host/call/holder_call.h"']
    for name in texts:
        lines += [f"#define {FIRST} {name}", f"namespace of_{name} {{", f'#include "{name}.h"', "}", f"#undef {FIRST}"]
    first = next(iter(texts))
    lines += [f'extern "C" ZENC_EXPORT zenc::i64 {FIRST}(zenc::Call* call) {{ return of_{first}::{first}(call); }}']
    return {**{f"{name}.h": text for name, text in texts.items()}, UNIT: "\n".join([*lines, ""])}


class JoinedSequence(CallSequence):
    """The sequences behind one entry of a joined unit; its ``zenc_all_reduce`` is that of the first."""

    def __init__(self, path: Path, entry: str) -> None:
        super().__init__(path)
        self._entry = self._library[entry]
        self._entry.restype, self._entry.argtypes = ctypes.c_int64, (ctypes.c_void_p,)

    def all_reduce(self, call: CallArgs) -> CallOutcome:
        return CallOutcome(self._entry(ctypes.byref(call)))


def unit_of_shipped(scheme: str, size: int) -> CallSequence:
    """The sequences of a shipped scheme with its defaults, among one of ``SIZES``."""
    return JoinedSequence(_shipped(), f"{scheme}_{size}")


@cache
def _shipped() -> Path:
    return library_of({f"{scheme}_{size}": (plan_of_shipped(scheme), size) for scheme, size in cases(SIZES)})


def library_of(plans: Mapping[str, tuple[Plan, int]]) -> Path:
    """The joined unit of all ranks' sequences of each plan among as many ranks, unoptimised; by names of entries."""
    texts = {
        name: render_sequences([lowered(plan, size, rank) for rank in range(size)])[FILE]
        for name, (plan, size) in plans.items()
    }
    sources = joined(texts)
    command = [*STRICT, *(f"-I{path}" for path in include_dirs("cuda")), UNIT]
    return compiled(command, {**headers("cuda"), **sources}, sources)
