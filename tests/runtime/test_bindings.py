"""Entry points of a library as Python calls them: with the types that C++ gives them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from zenc.codegen.build.host import build
from zenc.runtime.cpu.bindings import entry_points

SOURCE = """
#include "zenc/entry_points.h"
using namespace zenc;
struct Pair {
    i64 first, second;
    i64 sum(float more) { return first + second + i64(more); }
};
i64 half(i64 number, const i64& other) { return (number + other) / 2; }
u64 all(bool given) { return given ? ~0ULL : 0; }
double mean(u32 a, int b, double c) { return (a + b + c) / 3; }
const void* same(const void* address) { return address; }
void add(i64* to) { ++*to; }
const EntryPoint zenc_entry_points[] = {
    entry("half", half), entry("all", all), entry("mean", mean), entry("same", same), entry("add", add),
    entry("sum", Method<&Pair::sum>::call), {},
};
"""


@pytest.fixture(scope="module")
def path() -> Path:
    return build({"half.cpp": SOURCE})


def test_functions_take_and_return_what_they_do_in_cpp(path):
    of, other = entry_points(path), (ctypes.c_int64 * 2)(-(1 << 40), 5)
    at = ctypes.addressof(other)
    assert of["half"](1 << 61, at) == (1 << 60) - (1 << 39)
    assert of["half"](-(1 << 61), at) == -(1 << 60) - (1 << 39)
    assert (of["all"](True), of["all"](0)) == ((1 << 64) - 1, 0)
    assert of["mean"]((1 << 32) - 1, -(1 << 31), 2.5) == ((1 << 31) - 1 + 2.5) / 3
    assert (of["same"](at), of["same"](None)) == (at, None)
    assert of["add"](at) is None and other[0] == 1 - (1 << 40)
    assert of["sum"](at, 2.75) == other[0] + 5 + 2
    with pytest.raises((ctypes.ArgumentError, TypeError)):
        of["half"](at)
    with pytest.raises(ctypes.ArgumentError):
        of["half"](0.5, at)


def test_a_type_without_a_letter_does_not_compile():
    text = SOURCE.replace("u64 all(bool given)", "short all(bool given)")
    with pytest.raises(Exception, match="compile-failed"):
        build({"half.cpp": text})
