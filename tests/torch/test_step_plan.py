"""The plan of a step: for any buckets the hook makes the calls that deciding each step anew would make."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import fuzzed
from zenc.torch import bucket as buckets_module
from zenc.torch import hook
from zenc.torch.bucket import PlacedGradient
from zenc.torch.parameters import Served
from zenc.torch.strategy.active_rule import ActiveRule
from zenc.torch.strategy.grouping import FullBuffers
from zenc.torch.strategy.table_groups import kinds_of

Call = tuple[Any, ...]
KINDS = ("table", "wide table", "rows", "together", "kept", "own")
"""Kinds of parameters: sparse, of one of two widths; dense by rows or with others; with residuals; or DDP's own."""
RULED, OWN, IDLE = 2.0, 3.0, 1.0
"""Factors by which a gradient is multiplied in place of its average."""


def done(value: Any) -> torch.futures.Future[Any]:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(value)
    return future


class RecordedRule(ActiveRule):
    """A rule that makes no calls, and notes them."""

    __slots__ = ()

    def average(self, gradient: Any, name: Any, rows: Any, counted: Any, announced: Any = None) -> Any:
        made: Any = self.collective
        made.calls.append((self.text, tuple(made.begun), rows, announced))
        work = SimpleNamespace(counted=None, wait=lambda: None)
        result = gradient * RULED if gradient.is_sparse else gradient.mul_(RULED)
        return work, done(result)


@dataclass(frozen=True)
class Model:
    """Parameters with their kinds; ``strategy``: under rules with texts, with groups of ``bytes``."""

    kinds: tuple[str, ...]
    rows: tuple[int, ...]
    strategy: bool
    bytes: int

    def parameters(self) -> dict[str, torch.Tensor]:
        width = {"wide table": 2}
        shapes = zip(self.kinds, self.rows, strict=True)
        return {f"{at}": torch.zeros(rows, width.get(kind, 1)) for at, (kind, rows) in enumerate(shapes)}


@dataclass
class Bucket:
    """A bucket as DDP's; ``own`` are its parameters."""

    at: int
    own: list[torch.Tensor]
    last: bool
    sparse: bool

    def __post_init__(self) -> None:
        if self.sparse:
            ones = torch.ones(1, self.own[0].shape[1])
            self.flat = torch.sparse_coo_tensor(
                torch.zeros(1, 1, dtype=torch.int64), ones, self.own[0].shape, check_invariants=False
            )
        else:
            self.flat = torch.ones(sum(each.numel() for each in self.own))

    def index(self) -> int:
        return self.at

    def is_last(self) -> bool:
        return self.last

    def parameters(self) -> list[torch.Tensor]:
        return self.own

    def buffer(self) -> torch.Tensor:
        return self.flat

    def gradients(self) -> list[torch.Tensor]:
        return list(torch.split(self.flat, [each.numel() for each in self.own]))


class Reference:
    """The calls of a step, decided anew from all of its buckets, and those of the step before where groups are cut."""

    def __init__(self, model: Model) -> None:
        self.model, self.before, self.ends = model, list[tuple[str, ...]](), set[int]()

    def calls(self, layout: Sequence[tuple[str, ...]], idle: set[str], announced: set[str]) -> Iterator[Call]:
        arrived: list[str] = []
        waiting: list[str] = []
        for at, names in enumerate(layout):
            kinds, last = {self.kind(name) for name in names}, at + 1 == len(layout)
            if kinds & {"table", "wide table"}:
                if names[0] in announced:
                    yield self.text(names[0]), names, False, names[0]
                else:
                    waiting.append(names[0])
                if last or not self.joined(layout, at + 1):
                    yield from self.tables(waiting)
                    waiting = []
            else:
                yield from ((self.text(name), (name,), True, None) for name in names if self.kind(name) == "rows")
                asked = [name for name in names if self.kind(name) in ("together", "kept")]
                kept = [name for name in asked if self.kind(name) == "kept"]
                if kept:
                    yield "asked", *kept
                arrived += [name for name in asked if self.kind(name) == "together" or name not in idle]
                others = [name for name in names if self.kind(name) == "own"]
                if len(others) == len(names):
                    yield "own way", *names
            if last or list(layout[: at + 1]) != self.before[: at + 1] or at + 1 in self.ends:
                for text in ("a", "b", ""):
                    found = [name for name in arrived if self.text(name) == text]
                    if found:
                        yield text, tuple(sorted(found, key=int)) if text == "b" else tuple(found), False, None
                arrived = []
        self.learn(layout)

    def tables(self, names: Sequence[str]) -> Iterator[Call]:
        ordered = tuple(sorted(names, key=int))
        if names:
            yield self.text(names[0]), ordered, False, None

    def joined(self, layout: Sequence[tuple[str, ...]], at: int) -> bool:
        """Return whether the table of bucket ``at`` is in the group before it: neighbours fill groups in turn."""
        if self.model.strategy:
            return False
        filled = 0
        for before, (name, *_) in zip([("",), *layout], layout[: at + 1], strict=False):
            kind, size = self.kind(name), 4 * self.model.parameters()[name].numel()
            same = "table" in kind and before != ("",) and self.kind(before[0]) == kind
            joins = same and filled + size <= self.model.bytes
            filled = size + (filled if joins else 0)
        return joins

    def learn(self, layout: Sequence[tuple[str, ...]]) -> None:
        """Fill groups of buckets for the next step."""
        self.before, self.ends, filled = list(layout), set(), 0
        parameters = self.model.parameters()
        for at, names in enumerate(layout):
            size = 4 * sum(parameters[name].numel() for name in names)
            if not self.model.strategy or (filled and filled + size > self.model.bytes):
                self.ends.add(at)
                filled = 0
            filled += size

    def kind(self, name: str) -> str:
        return self.model.kinds[int(name)]

    def factor(self, name: str, idle: set[str]) -> float:
        kind = self.kind(name)
        return OWN if kind == "own" else IDLE if kind == "kept" and name in idle else RULED

    def text(self, name: str) -> str:
        return ("b" if self.kind(name) == "kept" else "a") if self.model.strategy else ""


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, list[list[tuple[str, ...]]]]:
    """Draw a model, and the buckets of each step: a layout is mostly that of the step before."""
    strategy = draw(st.booleans())
    known = KINDS if strategy else [kind for kind in KINDS if kind != "kept"]
    kinds = draw(st.lists(st.sampled_from(known), min_size=1, max_size=8))
    rows = draw(st.lists(st.integers(1, 9), min_size=len(kinds), max_size=len(kinds)))
    model = Model(tuple(kinds), tuple(rows), strategy, draw(st.sampled_from([0, 40, 80, 10_000])))
    steps: list[list[tuple[str, ...]]] = []
    for again in draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)):
        if steps and again:
            steps.append(steps[-1])
            continue
        layout: list[tuple[str, ...]] = []
        for name in draw(st.permutations([str(at) for at in range(len(kinds))])):
            dense = "table" not in kinds[int(name)]
            fits = dense and layout and "table" not in kinds[int(layout[-1][0])]
            if fits and draw(st.booleans()):
                layout[-1] = (*layout[-1], name)
            else:
                layout.append((name,))
        steps.append(layout)
    return model, steps


def state_of(model: Model, made: list[Call], parameters: dict[str, torch.Tensor]) -> hook.ZencState:
    def rule(text: str, lossy: bool) -> RecordedRule:
        """Return a rule of the parameters that it has by the reference."""
        own = {k: n for k, n in of_kind.items() if not model.strategy or (k == "kept") == lossy}
        named = {kind: {name: parameters[name] for name in names} for kind, names in own.items()}
        sparse = tuple(sorted([*named.get("table", {}), *named.get("wide table", {})], key=int))
        plan = SimpleNamespace(feedback="residual" if lossy else None, phases=(), is_lossy=lossy, scheme="none")
        of: Any = SimpleNamespace(artifact=SimpleNamespace(plan=plan), keeper=None, calls=made, begun=[])
        together = named.get("kept" if lossy else "together", {})
        return RecordedRule(text, of, Served(sparse, named.get("rows", {}), together))

    of_kind: dict[str, list[str]] = {}
    for name, kind in zip(parameters, model.kinds, strict=True):
        of_kind.setdefault(kind, []).append(name)
    rules = (rule("a", False), rule("b", True)) if model.strategy else (rule("", False),)
    state = hook.ZencState(rules, None, {parameter: name for name, parameter in parameters.items()})
    for each in rules:
        begins = partial(setattr, each.collective, "begun")
        state.log.listeners.append(SimpleNamespace(begins=begins))  # type: ignore[arg-type]
    state.unused = True
    state.plan.join(kinds_of(state.rules, parameters), model.bytes, waits=True)
    if model.strategy:
        state.plan.grouping = FullBuffers(model.bytes)
    return state


@fuzzed(40)
@given(models(), st.data())
def test_the_calls_are_those_of_a_decision_anew_in_each_step(drawn: Any, data: st.DataObject) -> None:
    model, steps = drawn
    parameters, made, idle = model.parameters(), list[Call](), set[str]()
    names = {id(parameter): name for name, parameter in parameters.items()}
    state, reference = state_of(model, made, parameters), Reference(model)
    tables = [name for name, kind in zip(parameters, model.kinds, strict=True) if "table" in kind]

    def used(pieces: list[PlacedGradient], group: object) -> list[PlacedGradient]:
        made.append(("asked", *(names[id(piece.parameter)] for piece in pieces)))
        return [piece for piece in pieces if names[id(piece.parameter)] not in idle]

    def own(bucket: Bucket, group: object) -> torch.futures.Future[Any]:
        made.append(("own way", *(names[id(each)] for each in bucket.own)))
        return done(bucket.flat * OWN)

    replaced = (
        mock.patch.object(hook, "own_way", own),
        mock.patch.object(hook, "used_somewhere", used),
        mock.patch.object(buckets_module, "average", lambda flat, group: done(flat.mul_(OWN))),
    )
    with replaced[0], replaced[1], replaced[2]:
        for layout in steps:
            made.clear()
            idle = data.draw(st.sets(st.sampled_from(sorted(parameters))), "idle")
            announced = data.draw(st.sets(st.sampled_from(tables)), "announced") if tables else set()
            takes = {name: SimpleNamespace(taken=lambda of=name: of, ended=lambda counted: None) for name in announced}
            state.announcer.tables = takes  # type: ignore[assignment]
            step = [
                Bucket(at, [parameters[name] for name in own], at + 1 == len(layout), own[0] in tables)
                for at, own in enumerate(layout)
            ]
            averaged = [state.reduce(bucket) for bucket in step]  # type: ignore[arg-type]
            assert made == list(reference.calls(layout, idle, announced))
            for bucket, average in zip(step, averaged, strict=True):
                values = average.wait().to_dense().reshape(-1)
                factors = [reference.factor(names[id(each)], idle) for each in bucket.own for _ in range(each.numel())]
                assert bucket.sparse or values.tolist() == factors
                assert not bucket.sparse or values.max().item() == factors[0]


def test_a_step_and_a_call_pass_few_files(four) -> None:
    """A reader of what a step of one table does, or an ``all_reduce``, has as many files to open."""
    for found in four.run("tests.torch.test_table_groups:files_on_the_way", size=2):
        assert len(found["step"]) <= 20, "\n".join(found["step"])
        assert len(found["call"]) <= 14, "\n".join(found["call"])
