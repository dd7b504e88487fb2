"""Public objects: arguments of a wrong type are named, texts of objects are a line, and numbers end where they say."""

from __future__ import annotations  # types are read as texts

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf, nan, nextafter
from types import FunctionType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import typer

import zenc
from tests.support.local import collectives
from tests.support.refusals import refusals
from zenc.cli import given
from zenc.common.arguments import names_wrong_types
from zenc.common.limits import LIMITS
from zenc.errors import ZencError
from zenc.forecast import simulate
from zenc.gradients import profile_generators
from zenc.gradients.profile_generators import uniform
from zenc.runtime import load
from zenc.runtime.call.call_queue import Work
from zenc.simulator.calibration import DEFAULTS, LIMITED, Kernel
from zenc.simulator.predict import network, predict
from zenc.topology.shapes import ring

WITHOUT = {"schemes", "noop_hook", "zenc_hook"}
"""Public functions without arguments, and those that torch calls."""


def test_every_public_function_names_them():
    public = {name: getattr(zenc, name) for name in zenc.__all__}
    functions = {name: each for name, each in public.items() if isinstance(each, FunctionType)}
    made = {name: public[name].__init__ for name in ("Averager", "Profiler", "ReplicaAverage", "ShardedTableOptimizer")}
    called = {name: getattr(zenc.Collective, name) for name in ("all_reduce_coalesced", "announce", "owned")}
    for name, function in {**functions, **made, **called}.items():
        assert name in WITHOUT or hasattr(function, "__wrapped__"), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zenc.compile("dense_ring", ranks="4"), "ranks of zenc.compile is int | None, not '4'"),
        (lambda: zenc.compile("dense_ring", ranks=True), "ranks of zenc.compile is int | None, not True"),
        (lambda: zenc.compile("dense_ring", params=7), "params of zenc.compile is Parameters | None, not 7"),
        (lambda: zenc.explain("dense_ring", units="x"), "units of zenc.explain is int, not 'x'"),
        (lambda: zenc.simulate("dense_ring", [7]), "gradients of zenc.simulate is Gradients, not [7]"),
        (lambda: zenc.load_topology(None), "what of zenc.load_topology is str | os.PathLike[str], not None"),
        (lambda: zenc.Profiler(every="x"), "every of zenc.Profiler is int, not 'x'"),
        (lambda: zenc.clip_grad_norm_([None], 1.0), "parameters of zenc.clip_grad_norm_ is torch.Tensor | Iterable"),
    ],
    ids=lambda of: "" if callable(of) else of.partition(" is")[0].replace(" of zenc.", "-"),
)
def test_what_is_wrong_is_named(call, message):
    (found,) = refusals(zenc.ZencError, call)
    assert found.id == "wrong-argument" and found.message.startswith(message), found.message
    assert found.help and found.help.startswith("help(zenc.")


def test_errors_of_another_reason_stay_as_they_are():
    @names_wrong_types
    def function(numbers: list[int], scale: float = 1.0) -> list[int]:
        return [number + int(scale * 1.0) for number in numbers][7]

    with pytest.raises(IndexError):
        function([1], 2)
    with pytest.raises(zenc.ZencError, match=r"scale of zenc\..*function is float, not '2'"):
        function([1], "2")
    with pytest.raises(zenc.ZencError, match=r"numbers of zenc\..*function is list\[int\], not \[1, None\]"):
        function([1, None])
    with pytest.raises(TypeError, match="unexpected keyword"):
        function([1], shift=torch.ones(1))
    assert inspect.signature(function).parameters["scale"].default == 1.0


DIGEST = "[0-9a-f]{12}"


def ended(fails: bool) -> Work:
    def call() -> torch.Tensor:
        if fails:
            raise MemoryError
        return torch.ones(1)

    work = Work()
    work.run(call)
    return work


def state() -> zenc.ZencState:
    return zenc.ZencState(collectives(zenc.compile("balanced", ranks=1), 1)[0])


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: zenc.compile("balanced"), f"<zenc.Artifact balanced for any number of ranks, target cpu, .*{DIGEST}>"),
        (lambda: zenc.compile("auto", ranks=4), f"<zenc.Artifact auto for 4 ranks, target cpu, digest {DIGEST}>"),
        (lambda: zenc.check("balanced"), "<zenc.Report balanced, proved for 1 to 16 ranks, 0 warnings>"),
        (lambda: zenc.check("zen_cluster"), "<zenc.Report zen_cluster, proved for 8, 16, 24 ranks, 0 warnings>"),
        (
            lambda: profile_generators.zipf(0.02, 1.05, 50_000, 64, "f32"),
            "<zenc.Profile zipf: 50000 x 64 f32, density 0.02>",
        ),
        (lambda: Work(), "<zenc.Work under way on cpu>"),
        (lambda: ended(fails=False), "<zenc.Work ended on cpu>"),
        (lambda: ended(fails=True), "<zenc.Work failed with MemoryError on cpu>"),
        (lambda: zenc.Profiler(every=7), "<zenc.Profiler every 7, of 65536 units: 0 parameters so far>"),
        (state, f"<zenc.ZencState of <zenc.Collective balanced {DIGEST} rank 0 of 1>, 0 parameters so far>"),
    ],
)  # fmt: skip
def test_a_line(made, shown):
    found = repr(made())
    assert re.match(shown, found) and "\n" not in found and len(found) < 150, found


PLAN = zenc.compile("dense_ring", target="plan").plan


def predicted(**changes: object) -> None:
    """Predict with a calibration: a number that it takes leads to seconds, and to no infinity."""
    found = predict(PLAN, 4, uniform(0.5, 1000, 4, "f32"), calibration=replace(DEFAULTS, **changes))
    assert 0 <= found.seconds < inf


def in_a_profile(limit: str, name: str) -> tuple[str, str, Callable[[float], object]]:
    return limit, f"calibration: {name}", lambda value: predicted(**{name: int(value) if name == "cores" else value})


READERS: list[tuple[str, str, Callable[[float], object]]] = [
    *(in_a_profile(limit, name) for name, limit in LIMITED.items()),
    ("speed", "calibration: speed of a kernel", lambda value: predicted(pack=Kernel(((0.0, 0.0), (1.0, 0.0)), value))),
    ("seconds", "calibration: curve", lambda value: predicted(pack=Kernel(((0.0, 0.0), (1.0, value)), 1e9))),
    ("bandwidth", "topology", lambda value: ring(3, bandwidth=value)),
    ("latency", "topology", lambda value: ring(3, latency=value)),
    ("bandwidth", "forecast", lambda value: simulate("dense_ring", uniform(0.5, 9, 4), ranks=2, bandwidth=value)),
    ("bandwidth", "--bandwidth", lambda value: given.bandwidths(f"{value!r} B/s", None)),
    ("seconds", "--computing", lambda value: given.amount("latency", "--computing", f"{value!r} s")),
    ("memory", "--rest", lambda value: given.amount("memory", "--rest", f"{value!r} B")),
    ("deadline", "deadline", lambda value: load.deadline_of(value, None)),
]


@pytest.mark.parametrize(("limit", "place", "read"), READERS, ids=[f"{place}: {limit}" for limit, place, _ in READERS])
def test_both_ends_are_taken_and_nothing_beyond(limit: str, place: str, read: Callable[[float], object]) -> None:
    least, most = LIMITS[limit].least, LIMITS[limit].most
    step = (lambda value, to: value + (1 if to > 0 else -1)) if "cores" in place else nextafter
    for value in (least, most):
        read(value)
    beyond = [step(most, inf), step(least, -inf)]
    written = place.startswith("--") or "cores" in place
    for value in (*beyond, *([] if written else [nan, inf, -inf])):
        with pytest.raises((ZencError, typer.BadParameter)):
            read(value)


def test_every_limit_is_tried() -> None:
    assert {limit for limit, _, _ in READERS} == set(LIMITS) - {"simulated ranks"}


@pytest.mark.parametrize("value", ["-5 Gbit/s", "0 Gbit/s", "1e69 Gbit/s"])
def test_a_bandwidth_is_blamed_on_itself(value: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"--bandwidth: '{value}'"):
        given.bandwidths(value, None)
    with pytest.raises(ZencError, match="bad-bandwidth"):
        simulate("dense_ring", uniform(0.5, 9, 4), ranks=2, bandwidth=value)


def test_more_ranks_than_are_simulated_take_no_memory() -> None:
    most = int(LIMITS["simulated ranks"].most)
    network(None, most, DEFAULTS)
    for attempt in (
        lambda: network(None, most + 1, DEFAULTS),
        lambda: simulate("dense_ring", uniform(0.5, 9, 4), ranks=most + 1),
    ):
        with pytest.raises(ZencError, match="4096"):
            attempt()


def test_a_group_that_waits_for_ever_has_the_longest_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(options=SimpleNamespace(_timeout=timedelta.max))
    group = dist.ProcessGroup(0, 1)
    monkeypatch.setattr(dist.ProcessGroup, "_device_types", ["cpu"], raising=False)
    monkeypatch.setattr(dist.ProcessGroup, "_get_backend", lambda *_: backend)
    assert load.deadline_of(None, group) == LIMITS["deadline"].most
