"""Tensors that kernels can't take as they are, in every public entry; torch's modes change no bit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import zenc
from tests.runtime.tensor_jobs import ENTRIES, KINDS, MODES
from zenc.runtime.call.layout import _overlaps

JOBS = "tests.runtime.tensor_jobs:"
TAKES_OVERLAPS = {"reduce_scatter", "fsdp in"}
"""Entries that do not change their input."""
WITH_DTYPE = {"empty", "zeros", "ones", "full", "tensor", "arange", "rand", "randn", "randint", "randperm", "eye"}
WITH_DEVICE = WITH_DTYPE | {"as_tensor", "asarray", "empty_strided", "linspace", "scalar_tensor"}
SPARSE = {"sparse_coo_tensor", "sparse_csr_tensor", "sparse_compressed_tensor"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_is_not_plain_is_refused_by_name_everywhere(two, kind):
    here, there = two.run(JOBS + "refused", kind=kind)
    assert set(here) == set(ENTRIES)
    for entry, id in here.items():
        expected = kind in ("expanded", "overlapping") and entry in TAKES_OVERLAPS
        assert expected or (id and there[entry] and (":" not in id or kind == "list")), (entry, id)
    if kind in ("dtensor", "fake", "functional", "functorch", "freed", "dual", "wrapper", "masked", "zero", "negated"):
        assert here["all_reduce"] == here["publish"] == here["averager"] == "not-plain"


def test_a_functional_collective_is_waited_for(two):
    assert two.run(JOBS + "of_functional_collective") == [[6.0] * 3] * 2


@pytest.mark.parametrize("scheme", ["balanced", "holders", "dense_ring", "topk_a2a", "one_bit"])
def test_no_mode_of_torch_changes_a_bit(two, scheme):
    plain = two.run(JOBS + "in_mode", mode="none", scheme=scheme)
    for mode in MODES:
        assert two.run(JOBS + "in_mode", mode=mode, scheme=scheme) == plain, mode


@pytest.mark.parametrize("mode", ["fake", "inference"])
def test_no_mode_stays_in_what_is_loaded(two, mode):
    assert two.run(JOBS + "loaded_in_mode", mode=mode) == two.run(JOBS + "loaded_in_mode", mode="none")


def test_tensors_of_inference_mode_are_summed_in_place(two):
    assert two.run(JOBS + "made_in_inference_mode") == [[[2.0] * 3] * 4] * 2


def test_shapes_that_no_tensor_has_are_refused(two):
    large, layout = "tensor-too-large", "unsupported-layout"
    announced, owned = [layout, layout, large, large], [layout, layout, large, layout, layout, layout]
    expected = [*announced, *owned, layout, "wrong-pieces", "wrong-pieces"]
    assert two.run(JOBS + "without_such_a_shape") == [expected] * 2


def test_a_sum_in_place_is_a_change_that_autograd_sees(two):
    assert all("modified by an inplace operation" in each for each in two.run(JOBS + "kept_for_backward"))


@pytest.mark.parametrize(
    ("shape", "strides", "shared"),
    [
        ((5, 4), (0, 0), True),
        ((5, 1), (1, 0), False),
        ((2, 3), (1, 1), True),
        ((3, 2), (2, 3), False),
        ((3, 2), (2, 4), True),
        ((4, 3), (1, 4), False),
        ((4, 3), (1, 7), False),
        ((0, 3), (0, 0), False),
        ((1 << 20, 1 << 20), (0, 0), True),
    ],
)
def test_overlaps_are_found_exactly(shape, strides, shared):
    assert _overlaps(torch.zeros(40).as_strided(shape, strides)) is shared


def _unnamed(path: Path) -> Iterator[str]:
    """Yield calls that make tensors on torch's default device, of its default dtype, or with its default checks."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        given = {keyword.arg for keyword in node.keywords}
        for called in [node.func.body, node.func.orelse] if isinstance(node.func, ast.IfExp) else [node.func]:
            if not (
                isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "torch"
            ):
                continue
            name = called.attr
            wanted = {"device"} if name in WITH_DEVICE | SPARSE else set()
            wanted |= {"dtype"} if name in WITH_DTYPE else {"check_invariants"} if name in SPARSE else set()
            yield from (f"{path}:{node.lineno}: torch.{name} without {each}=" for each in wanted - given)


def test_every_tensor_that_zenc_makes_names_its_device_and_dtype() -> None:
    package = Path(zenc.__file__).parent
    assert [each for path in sorted(package.rglob("*.py")) for each in _unnamed(path)] == []


def _deviceless(path: Path) -> Iterator[str]:
    """Yield futures on which work on a GPU would not wait for the streams that their results come from.

    A future without ``devices`` has no stream to be waited for, nor has what ``collect_all`` returns, nor one whose
    result has no tensor.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.futures.Future":
            if "devices" not in {keyword.arg for keyword in node.keywords}:
                yield f"{path}:{node.lineno}: a future without devices="
        elif isinstance(node, ast.Return | ast.Assign) and "collect_all(" in ast.unparse(node):
            yield f"{path}:{node.lineno}: what collect_all returns knows no device"
        elif isinstance(node, ast.FunctionDef) and node.args.args:
            of, returned = (ast.unparse(each) if each else "" for each in (node.args.args[0].annotation, node.returns))
            if of in ("Future", "Averaged") and returned == "None":
                yield f"{path}:{node.lineno}: {node.name} of an ended future returns no tensor"


def test_every_future_waits_for_the_streams_of_its_result() -> None:
    package = Path(zenc.__file__).parent
    assert [each for path in sorted(package.rglob("*.py")) for each in _deviceless(path)] == []
