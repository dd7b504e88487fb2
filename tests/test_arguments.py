"""Arguments of a wrong type end in an error that names them, at every public function."""

from __future__ import annotations

import inspect
from types import FunctionType

import pytest
import torch

import zenc
from zenc.common.arguments import names_wrong_types

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
    with pytest.raises(zenc.ZencError) as caught:
        call()
    (found,) = caught.value.diagnostics
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
