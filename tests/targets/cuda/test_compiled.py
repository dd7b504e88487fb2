"""The kernels of every mapping of the shipped schemes, as NVRTC compiles them for each generation of GPUs.

No GPU is needed. A launcher passes words of 8 bytes, or structures of them (``zenc_host/queue.h``), so it can only pass
too few, too many, or in another order. Their number is compared with the compiled kernel's.
"""

import os
import re
from concurrent.futures import ProcessPoolExecutor
from ctypes import sizeof
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.emulator.device import IndexSets, Partition
from tests.support.nvrtc import compiled_by
from tests.support.ptx import Usage, declared, entries, kernels_of_host, launches, split, usages
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.nvrtc import Nvrtc
from zenc.codegen.render import COMPRESSION, KINDS, compression_unit, render, templates_dir
from zenc.scheme.model import Holders, Mapping
from zenc.wire.constants import TABLE_WORDS

OLDEST, HOPPER = Arch(7, 5), Arch(9, 0)
OTHERS = HOPPER, Arch(8, 0), Arch(10, 0)
MAPPINGS = sorted({type(plan_of_shipped(name).mapping) for name in SHIPPED}, key=KINDS.__getitem__)
CASES = [
    pytest.param(kind, arch, id=f"{KINDS[kind]}-{arch}", marks=pytest.mark.slow)
    for kind in MAPPINGS
    for arch in (OLDEST, *OTHERS)
]
EACH_KIND = [case for case in CASES if case.values[1] == OLDEST]
MOST_REGISTERS = 65536 // (2 * 256)
"""Registers of a thread, so that two blocks of 256 threads have room on a multiprocessor."""
BY_VALUE = {
    "const zenc::Partition by": sizeof(Partition),
    "const zenc::IndexSets known": sizeof(IndexSets),
    "ZENC_TABLES": 8 * TABLE_WORDS,
}
"""Bytes of parameters that are no words."""
HOST = "\n".join(
    path.read_text()
    for pattern in ("zenc_host/**/*.h", "host/*.cpp", "host/*.j2")
    for path in (templates_dir() / "cuda").glob(pattern)
)


def source_of(kind: type[Mapping]) -> str:
    return render(kind, "cuda")["kernels.cu"]


@pytest.fixture(scope="module")
def compiled(nvrtc: Nvrtc, request: pytest.FixtureRequest):
    """Compile a mapping for an architecture, once; on all cores, since later tests need it."""
    asked = [item.callspec.params for item in request.session.items if item.path == Path(__file__) and has_params(item)]
    wanted = dict.fromkeys([(Holders, HOPPER), *((each["kind"], each["arch"]) for each in asked)])
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:  # NVRTC compiles one at a time in a process
        known = {
            (kind, arch): pool.submit(compiled_by, nvrtc.path, source_of(kind), str(arch)) for kind, arch in wanted
        }
        yield lambda kind, arch: known[kind, arch].result()


def has_params(item: pytest.Item) -> bool:
    return "kind" in getattr(getattr(item, "callspec", None), "params", ())


@pytest.mark.parametrize(("kind", "arch"), CASES)
def test_nothing_spills_and_nothing_is_warned_of(compiled, kind, arch):
    log = compiled(kind, arch).log
    found = {usage.name: usage for usage in usages(log)}
    assert set(found) == set(declared(source_of(kind)))
    assert [usage for usage in found.values() if usage.spilled or usage.registers > MOST_REGISTERS] == []
    assert "warning" not in log


def test_codes_are_compiled(nvrtc: Nvrtc) -> None:
    """The emulator takes C++ that NVRTC does not."""
    source = f"#define ZENC_ONLY\n#define ZENC_CODES_F32 1\n{compression_unit()[COMPRESSION]}"
    told = compiled_by(nvrtc.path, source, str(HOPPER))
    assert {"zenc_encode_rows_f32", "zenc_decode_rows_f32"} <= set(entries(told.ptx)) and "warning" not in told.log


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["place_once_32", "place_dense_16", "merge_32", "merge_16", "spread", "expand_dense", "expand_units"]
)
def test_rows_are_loaded_in_vectors_of_16_bytes(compiled, name):
    """Four at a time for each lane, by instructions that neither keep them in the caches nor keep these coherent."""
    text = compiled(Holders, HOPPER).ptx
    body = text[text.index(f".entry zenc_{name}(") :].partition("\n}\n")[0]
    assert body.count("ld.global.cs.nc.v4.u32") >= 4
    assert re.search(r"\bst(\.global)?\.v[248]\.", body)
    assert ".local" not in body


@pytest.mark.parametrize(("kind", "arch"), EACH_KIND)
def test_every_parameter_is_a_word_a_partition_or_tables(compiled, kind, arch):
    """A pointer, an i64, or a Partition or tables by value, as many as are declared, in at most 4 KiB."""
    wanted = declared(source_of(kind))
    kinds = {name: [kind_of(each) for each in given] for name, given in wanted.items()}
    assert entries(compiled(kind, arch).ptx) == kinds
    sizes = {name: sum(int(each[3:-1]) if "[" in each else 8 for each in given) for name, given in kinds.items()}
    assert {name: size for name, size in sizes.items() if size > 4096} == {}
    for name, parameters in wanted.items():
        for parameter in parameters:
            word = "*" in parameter or re.fullmatch(r"(zenc::)?i64( \w+)?", parameter)
            assert word or parameter in BY_VALUE, f"{name}: {parameter}"


def kind_of(parameter: str) -> str:
    return f"b8[{BY_VALUE[parameter]}]" if parameter in BY_VALUE else "u64"


def test_launchers_pass_as_many_words_as_kernels_take():
    sources = [*map(source_of, MAPPINGS), compression_unit()[COMPRESSION]]
    every = {name: parameters for source in sources for name, parameters in declared(source).items()}
    taken = {  # the queue adds tables
        name: len(parameters) - (parameters[-1] == "ZENC_TABLES") for name, parameters in every.items()
    }
    known = kernels_of_host(HOST)
    for kernel, arguments in launches(HOST):
        if kernel == "kernel":  # one of several that take the same
            continue
        names = [name for name in known[kernel] if name in taken]
        assert len(names) >= min(2, len(known[kernel]))  # compression and sums of lanes have no f64
        for full in names:
            assert len(arguments) == taken[full], f"{full} is launched with {arguments}"


def test_the_host_asks_of_an_epilogue_what_the_kernel_can_do():
    text = (templates_dir() / "cuda" / "kernels.cu.j2").read_text()
    can = dict(re.findall(r'kernel\("(\w+)".*ends="(\w+)"', text))
    asked = dict(re.findall(r'static const Kernel \w+\("zenc_(\w+)", Typed::\w+, Ending::(\w+)\);', HOST))
    assert {name: what for name, what in asked.items() if what != "NONE"} == can and can["sum"] == "ADMIT"


@pytest.mark.parametrize(("kind", "arch"), EACH_KIND)
def test_sums_are_rounded_as_on_the_cpu(compiled, kind, arch):
    """No fused multiply-add, by ``FLAGS``, and no instruction that flushes small numbers or guesses."""
    arithmetic = re.findall(r"\b(?:add|sub|mul|div|mad|fma)\.[\w.]*f(?:16|32|64)", compiled(kind, arch).ptx)
    assert set(arithmetic) <= {f"{operation}.rn.f{bits}" for operation in ("add", "div", "mul") for bits in (32, 64)}
    assert arithmetic


def test_what_is_read_of_a_text():
    ptx = """
.visible .entry one(
    .param .u64 one_param_0,
    .param .u64 .ptr .align 1 one_param_1,
    .param .align 8 .b8 one_param_2[16],
    .param .f32 one_param_3
)
.visible .entry none()
"""
    assert entries(ptx) == {"one": ["u64", "u64", "b8[16]", "f32"], "none": []}
    source = "ZENC_KERNEL(a, (i64, const u64* in, f(2, 3) of)) {}\nZENC_KERNEL(b,\n    ()) {}\n// ZENC_KERNEL(c, (x))\n"
    assert declared(source) == {"a": ["i64", "const u64* in", "f(2, 3) of"], "b": []}
    host = (
        'static const Kernel A("zenc_a");\nstatic const Kernel B("zenc_b", Typed::BY_BITS, Ending::RANK);\n'
        "queue.launch(A, g(1, 2), 1, {x, y}, h(z)); on->launch_of(F, A, 1, 1, y); on.launch_for(n, B, z);"
        "queue.launch_each(A, 1, t, y)"
    )
    assert kernels_of_host(host) == {"A": ["zenc_a"], "B": ["zenc_b_16", "zenc_b_32", "zenc_b_64"]}
    assert launches(host) == [("A", ["{x, y}", "h(z)"]), ("A", ["y"]), ("B", ["z"]), ("A", ["t", "length", "y"])]
    assert split("a, b[1, 2], c(d, e)") == ["a", "b[1, 2]", "c(d, e)"]
    log = (
        "ptxas info    : Compiling entry function 'k' for 'sm_90'\nptxas info    : Function properties for k\n"
        "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n"
        "ptxas info    : Used 12 registers, used 1 barriers, 32 bytes smem\n"
    )
    assert usages(log) == [Usage("k", registers=12, spilled=6, stack=8, shared=32)]
