"""Tensors that kernels can't take as they are, in every public entry; torch's modes change no bit."""

import ast
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import forward_ad

import zenc
from tests.runtime.jobs import bits
from zenc.runtime.call.layout import _overlaps

SHAPE, DEADLINE = (6, 4), 20.0


def _dtensor(group: dist.ProcessGroup) -> torch.Tensor:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(torch.ones(SHAPE), DeviceMesh.from_group(group, "cpu"), [Shard(0)])


def _fake(_: dist.ProcessGroup) -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(SHAPE)


def _freed(_: dist.ProcessGroup) -> torch.Tensor:
    tensor = torch.ones(SHAPE)
    tensor.untyped_storage().resize_(0)
    return tensor


def _wrapped(_: dist.ProcessGroup) -> torch.Tensor:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.ones(SHAPE), torch.ones(SHAPE))


def _functorch(_: dist.ProcessGroup) -> torch.Tensor:
    found: list[torch.Tensor] = []
    torch.func.grad(lambda x: (found.append(x), x.sum())[1])(torch.ones(SHAPE))
    return found[0]


def _dual(_: dist.ProcessGroup) -> torch.Tensor:
    forward_ad.enter_dual_level()  # a tangent ends with its level
    return forward_ad.make_dual(torch.ones(SHAPE), torch.ones(SHAPE))


KINDS: dict[str, Callable[[dist.ProcessGroup], torch.Tensor]] = {
    "dtensor": _dtensor,
    "fake": _fake,
    "functional": lambda _: torch._to_functional_tensor(torch.ones(SHAPE)),
    "functorch": _functorch,
    "nested": lambda _: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda _: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "quantised": lambda _: torch.quantize_per_tensor(torch.ones(SHAPE), 0.1, 0, torch.qint8),
    "meta": lambda _: torch.ones(SHAPE, device="meta"),
    "freed": _freed,
    "dual": _dual,
    "zero": lambda _: torch._efficientzerotensor(SHAPE),
    "negated": lambda _: torch._neg_view(torch.ones(SHAPE)),
    "wrapper": _wrapped,
    "masked": lambda _: torch.masked.masked_tensor(torch.ones(SHAPE), torch.ones(SHAPE).bool()),
    "csr": lambda _: torch.ones(SHAPE).to_sparse_csr(),
    "mkldnn": lambda _: torch.ones(SHAPE).to_mkldnn(),
    "sparse of meta": lambda _: torch.ones(SHAPE).to_sparse(1).to("meta"),
    "no sparse dimension": lambda _: torch.sparse_coo_tensor(
        torch.empty(0, 1), torch.ones(1, 4), check_invariants=False
    ),
    "list": lambda _: [1.0, 2.0],
    "expanded": lambda _: torch.ones(1).expand(SHAPE),
    "overlapping": lambda _: torch.ones(9).as_strided(SHAPE, (1, 1)),
}


def _announced(group: dist.ProcessGroup, tensor: Any) -> None:
    zenc.load("holders", group, deadline=DEADLINE).announce(tensor, (10, 4)).wait()


def _fetched(group: dist.ProcessGroup, tensor: Any) -> None:
    table = nn.Parameter(torch.zeros(10, 2))
    zenc.ShardedTableOptimizer([table], torch.optim.SparseAdam, group=group, on_demand=True, lr=0.1).fetch(tensor)


def _sharded(group: dist.ProcessGroup, tensor: Any) -> None:
    zenc.ShardedTableOptimizer([tensor], torch.optim.SparseAdam, group=group, lr=0.1)


def _clipped(_: dist.ProcessGroup, tensor: Any) -> None:
    owner: Any = SimpleNamespace(grad=tensor)  # torch itself refuses some kinds as a gradient
    zenc.clip_grad_norm_([owner], 1.0)


def _loaded(group: dist.ProcessGroup) -> zenc.Collective:
    return zenc.load("balanced", group, deadline=DEADLINE)


ENTRIES: dict[str, Callable[[dist.ProcessGroup, Any], object]] = {
    "all_reduce": lambda group, t: _loaded(group).all_reduce(t),
    "all_reduce async": lambda group, t: _loaded(group).all_reduce(t, async_op=True).wait(),
    "all_reduce_coalesced": lambda group, t: _loaded(group).all_reduce_coalesced([t]),
    "reduce_scatter": lambda group, t: _loaded(group).reduce_scatter(t),
    "all_gather": lambda group, t: _loaded(group).all_gather(t),
    "capturable": lambda group, t: _loaded(group).capturable(t),
    "announce": _announced,
    "replicas": lambda group, t: zenc.ReplicaAverage("balanced", group)([t]),
    "fsdp in": lambda group, t: zenc.FsdpReduceScatter()(torch.empty(3, 4), t, group, "sum"),
    "fsdp out": lambda group, t: zenc.FsdpReduceScatter()(t, torch.ones(12, 4), group, "sum"),
    "fsdp hook": lambda group, t: zenc.FsdpAllReduceHook("balanced", group)(t),
    "averager": lambda group, t: zenc.load_averager("ds_sync", group, deadline=DEADLINE).average_parameters([t]),
    "publish": lambda group, t: zenc.broadcast_update(t, t if group.rank() == 0 else None, root=0, group=group),
    "sharded": _sharded,
    "fetch": _fetched,
    "clip": _clipped,
}


def refused(group: dist.ProcessGroup, kind: str) -> dict[str, str]:
    """Return by entry the id of the error for a tensor of ``kind``; then the group still sums."""
    warnings.simplefilter("ignore")
    found = {}
    for entry, call in ENTRIES.items():
        tensor = KINDS[kind](group)
        try:
            call(group, tensor)
            found[entry] = ""
        except zenc.ZencError as error:
            found[entry] = error.diagnostics[0].id
        except (TypeError, ValueError) as error:
            found[entry] = f"{type(error).__name__}: {error}"
        assert _loaded(group).all_reduce(torch.ones(3)).tolist() == [group.size()] * 3
        if kind == "dual":
            forward_ad.exit_dual_level()
    return found


def of_functional_collective(group: dist.ProcessGroup) -> list[float]:
    """Return the sum of a functional collective's result, whose values may not be there yet."""
    from torch.distributed import _functional_collectives as functional

    pending = functional.all_reduce(torch.full((3,), float(group.rank() + 1)), "sum", group)
    assert type(pending) is not torch.Tensor
    return _loaded(group).all_reduce(pending).tolist()


def _deterministic() -> AbstractContextManager[None]:
    class Deterministic(AbstractContextManager[None]):
        def __enter__(self) -> None:
            torch.use_deterministic_algorithms(True)

        def __exit__(self, *_: object) -> None:
            torch.use_deterministic_algorithms(False)

    return Deterministic()


class _DefaultDtype(AbstractContextManager[None]):
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(torch.float32)


def _fake_mode() -> AbstractContextManager[object]:
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "none": nullcontext, "device": lambda: torch.device("meta"), "dtype": _DefaultDtype,
    "inference": torch.inference_mode, "no_grad": torch.no_grad, "deterministic": _deterministic, "fake": _fake_mode,
}  # fmt: skip


def _inputs(rank: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    dense = torch.randn(40, 4, generator=generator)
    rows = torch.randint(0, 40, (9,), generator=generator)
    sparse = torch.sparse_coo_tensor(rows[None], dense[:9].clone(), (40, 4), check_invariants=False)
    wide = torch.sparse_coo_tensor(torch.stack([rows, rows % 4]), dense[:9, 0].clone(), (40, 4), check_invariants=False)
    return {
        "dense": dense,
        "sparse": sparse,
        "of two dimensions": wide,
        "strided": torch.cat([dense, dense]).t()[:, ::2],
    }


def in_mode(group: dist.ProcessGroup, mode: str, scheme: str) -> list[str]:
    """Return bits of sums in ``mode``, entered after the scheme was loaded, and of a second round outside of it."""
    collective, found = zenc.load(scheme, group, deadline=DEADLINE), []
    lossy = collective.keeper is not None
    for surroundings in (MODES[mode], nullcontext):
        for name, tensor in _inputs(group.rank()).items():
            if lossy and tensor.is_sparse:
                continue
            with surroundings():
                total = collective.all_reduce(tensor, "mean", name=name)
                later = collective.all_reduce(total, "mean", async_op=True, name=name).wait()
            found += [bits(each.coalesce() if each.is_sparse else each) for each in (total, later)]
    return found


def without_such_a_shape(group: dist.ProcessGroup) -> list[str]:
    """Return the ids of errors for shapes, row ids and pieces that no tensor has."""
    holders, plain = zenc.load("holders", group, deadline=DEADLINE), _loaded(group)
    lossy = zenc.load("topk_a2a", group, deadline=DEADLINE)
    some, ids = torch.ones(4), torch.ones(1, dtype=torch.int64)
    calls: list[Callable[[], object]] = [
        *(lambda shape=shape: holders.announce(ids, shape) for shape in ((), (-6, 2), (1 << 62, 2), (1 << 70, 2))),
        *(lambda shape=shape: plain.owned(shape) for shape in ((), (-6, 2), (1 << 70, 2))),
        *(lambda dims=dims: plain.owned((3, 2), dims) for dims in (-1, 0, 5)),
        lambda: holders.announce(ids.to_sparse(), (6, 2)),
        lambda: lossy.all_reduce(some, name=[("a", -4), ("b", 8)]),
        lambda: lossy.all_reduce(some, name=[("a",)]),  # type: ignore[list-item]
    ]
    found = []
    for call in calls:
        try:
            call()
        except zenc.ZencError as error:
            found.append(error.diagnostics[0].id)
    return found


def made_in_inference_mode(group: dist.ProcessGroup) -> list[Any]:
    """Sum tensors made in inference mode outside of it: one with gaps, a contiguous one."""
    with torch.inference_mode():
        gaps, whole = torch.ones(6)[::2], torch.ones(3)
    collective = _loaded(group)
    return [collective.all_reduce(each).tolist() for each in (gaps, whole)] + [gaps.tolist(), whole.tolist()]


def loaded_in_mode(group: dist.ProcessGroup, mode: str) -> float:
    """Return a sum by what was loaded in ``mode`` among ranks that had no group of zenc's before."""
    fresh = dist.new_group(list(range(group.size())))
    with MODES[mode]():
        collective = zenc.load("topk_a2a", fresh, deadline=DEADLINE)
    return float(collective.all_reduce(torch.ones(40, 4), name="of a mode").sum())


def kept_for_backward(group: dist.ProcessGroup) -> str:
    """Return torch's error of a backward pass that needs the values from before a sum in place."""
    weight = nn.Parameter(torch.ones(3))
    loss = (weight * weight).sum()
    _loaded(group).all_reduce(weight)
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return str(error)
    return ""


JOBS = "tests.runtime.test_plain_tensors:"
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
        ((5, 4), (0, 0), True), ((5, 1), (1, 0), False), ((2, 3), (1, 1), True), ((3, 2), (2, 3), False),
        ((3, 2), (2, 4), True), ((4, 3), (1, 4), False), ((4, 3), (1, 7), False), ((0, 3), (0, 0), False),
        ((1 << 20, 1 << 20), (0, 0), True),
    ],
)  # fmt: skip
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
