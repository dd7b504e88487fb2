"""Strategies for models: searched and written as a file, or read from one and predicted.

ModelStep x candidates --search--> TunedStrategy     # zenc tune --strategy
ModelStep x Strategy ------------> PredictedStep     # zenc simulate --strategy
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from time import perf_counter
from typing import Any

from zenc.analysis.fit import ensure_fits
from zenc.common.wording import seconds_text
from zenc.errors import printable
from zenc.language.files import load_file, load_text, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import ensure_all
from zenc.scheme.model import Candidate
from zenc.simulator.calibration import Calibration
from zenc.simulator.network import Network
from zenc.simulator.training.advice import candidates_of_auto
from zenc.strategy.merging import fused
from zenc.strategy.resolve import resolve_strategy
from zenc.strategy.search.tuning import StrategyResult, StrategySearch, buckets, search
from zenc.strategy.simulation.model_step import ModelStep
from zenc.strategy.simulation.scheme_calls import ON_HOST, SchemeTable
from zenc.strategy.simulation.step import VALUE_BYTES, StepTensor
from zenc.topology.model import Topology
from zenc.verify.proof import verify

WIDTH = 118
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
"""The number of a layer, in a name such as encoder.12.weight."""


def strategy_text(
    name: str,
    doc: str,
    tensors: Sequence[StepTensor],
    schemes: Sequence[str],
    groups: str = "",
    comment: Sequence[str] = (),
    named: Collection[str] = (),
) -> str:
    """Return the file of a strategy that gives ``tensors`` their ``schemes``; ``groups`` are in the language.

    Tensors that are ``named`` have a rule of their own, whatever the others have. ``doc`` holds no quotes; where
    a name does, * stands for them.
    """
    both = list(zip(tensors, schemes, strict=True))
    free = [(tensor, scheme) for tensor, scheme in both if tensor.name not in named]
    own = [(f'"{_written(tensor.name)}"', scheme) for tensor, scheme in both if tensor.name in named]
    rules, others = _by_size(free) or _by_name(free or both)
    entries = [f"    groups: {groups}"] if groups else []
    entries += [f"    tensors {which}: {scheme}" for which, scheme in (*own, *rules)]
    lines = [f"# {line}".rstrip() for line in comment]
    return "\n".join([*lines, f"strategy {name} {{", f'    "{doc}"', *entries, f"    others: {others}", "}", ""])


Rules = tuple[list[tuple[str, str]], str]
"""Rules, and the scheme of all others."""


def _by_size(free: Sequence[tuple[StepTensor, str]]) -> Rules | None:
    """Return one rule for tensors greater than some size, where that suffices; None where not, or if all are alike."""
    ordered = sorted(free, key=lambda each: each[0].numel)
    if len({scheme for _, scheme in free}) != 2:
        return None
    (least, small), (_, great) = ordered[0], ordered[-1]
    below = max((tensor.numel for tensor, scheme in free if scheme == small), default=least.numel)
    above = min(tensor.numel for tensor, scheme in free if scheme == great)
    return ([(f"above {below * VALUE_BYTES} B", great)], small) if small != great and below < above else None


def _by_name(free: Sequence[tuple[StepTensor, str]]) -> Rules:
    most = Counter(scheme for _, scheme in free).most_common(1)[0][0]
    return list(_patterns(free, most)), most


def _patterns(free: Sequence[tuple[StepTensor, str]], most: str) -> Iterator[tuple[str, str]]:
    of: dict[str, set[str]] = {}
    for tensor, scheme in free:
        of.setdefault(_pattern(tensor.name), set()).add(scheme)
    told: set[str] = set()
    for tensor, scheme in free:
        pattern = _pattern(tensor.name)
        which = pattern if len(of[pattern]) == 1 else _written(tensor.name)
        if scheme != most and which not in told:
            told.add(which)
            yield f'"{which}"', scheme


def _pattern(name: str) -> str:
    return NUMBER.sub("*", _written(name))


def _written(name: str) -> str:
    return "".join("*" if char == '"' or printable(char) != char else char for char in name)


NAME = "tuned"
DEFAULT_SCHEMES = "dense_ring, dense_halving_doubling"
"""Schemes that are chosen among unless others are named: lossy ones have to be asked for."""
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """The schemes that a strategy may use: ``plans`` by name, and the texts of those that do not come with zenc."""

    plans: Mapping[str, Plan]
    texts: Mapping[str, str]


def candidates_of(schemes: str, size: int, topology: Topology | None = None) -> SchemeChoice:
    """Return the ``schemes`` as a choice has them, ``dense_ring, topk_a2a(0.01)``, or those of a strategy's file.

    Each is proved for ``size`` ranks. Raises as a strategy with them does, SchemeError or SyntaxError, and
    VerificationError; TopologyError where one does not suit the ``topology``.
    """
    if schemes.endswith(".zen"):
        program = load_file(locate(schemes))
    else:
        program = load_text(f"strategy asked {{ others: choose from [{schemes}] }}", "--schemes")
    strategy, _ = resolve_strategy(program)
    plans = {name: proved(candidate, size, topology) for name, candidate in strategy.candidates.items()}
    own = {each.name.text: each.span for file in reversed(program.files) for each in file.schemes}
    texts = {name: span.source.text[span.start : span.end] for name, span in own.items() if span is not None}
    return SchemeChoice(plans, texts)


def proved(candidate: Candidate, size: int, topology: Topology | None = None) -> Plan:
    """Return the plan of ``candidate``, proved for ``size`` ranks; raises VerificationError, and TopologyError."""
    plan = lower(candidate.scheme, size)
    if topology:
        ensure_fits(plan, topology)
    ensure_all(plan, size)
    verify(plan, size)
    return plan


@dataclass(frozen=True, slots=True, eq=False)
class TunedStrategy:
    """The best strategy found for ``of``, and those that it was compared with; ``took`` seconds of search."""

    of: ModelStep
    found: StrategySearch
    tables: Mapping[str, str]
    size: int
    where: str
    predicted: int
    took: float
    notes: tuple[str, ...]
    texts: Mapping[str, str] = field(default_factory=dict)

    def text(self, command: str = "zenc.tune_strategy(...)") -> str:
        """Return the file of the best strategy; ``command`` found it."""
        best, step = self.found.best, self.of.step
        rows = self.rows()
        comment = [
            f"Found by {command}:",
            f"the least of {self.found.tried:,} steps, for {self.size} ranks on {self.where}.",
            f"Predicted: a step of {seconds_text(best.seconds)}, of which {seconds_text(best.exposed)} come after the "
            f"backward pass; {seconds_text(step.computing)} without communication.",
            *(f"  {row['seconds']}: {row['strategy']}" for row in rows[1:5]),
            *self._advice(),
            *(f"{note[:1].upper()}{note[1:]}." for note in (*self.notes, *self.pruned)),
        ]
        schemes = [self.tables.get(name, name) for name in best.schemes]
        named = {step.tensors[at].name for at in self.of.tables}
        doc = f"For {self.size} ranks on {self.where}, as predicted."
        wrapped = [line for each in comment for line in wrap(each, 116, subsequent_indent="  ")]
        used = dict.fromkeys(name.removesuffix(ON_HOST).partition("(")[0] for name in schemes)
        own = [self.texts[name] for name in used if name in self.texts]
        return "\n\n".join([*own, strategy_text(NAME, doc, step.tensors, schemes, self.groups, wrapped, named)])

    @property
    def pruned(self) -> tuple[str, ...]:
        """Remarks about what was not searched, and why."""
        names = " and ".join(each.removesuffix(ON_HOST) for each in self.found.pruned)
        why = f"not tried on the host, where calls of these tensors take no less than on the GPU: {names}"
        return (why,) if names else ()

    def _advice(self) -> list[str]:
        """Return the size of DDP's buckets with which the run time can follow the groups."""
        if self.groups == "buckets":
            return []
        wrapped = "DistributedDataParallel(model, bucket_cap_mb=1e-6)"
        return [f"Groups are made of whole buckets: {wrapped} makes one of each gradient."]

    @property
    def groups(self) -> str:
        """The groups in the language."""
        step, ends = self.of.step, self.found.best.ends
        if ends == buckets(step):
            return "buckets"
        for size in (MEBIBYTE << power for power in range(8)):
            if ends == fused(step, size):
                return f"fused({size} B)"
        return f"cuts({', '.join(map(str, ends))})" if ends else "search(1)"

    def rows(self) -> list[dict[str, str]]:
        """Return the best and those that it was compared with, the least first, as text."""
        best = self.found.best
        others = sorted(self.found.others.items(), key=lambda each: each[1].seconds)
        return [_row(name, each, best.seconds) for name, each in [("the best", best), *others]]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; seconds of a step."""
        tensors = [
            {"name": tensor.name, "values": tensor.numel, "ready": ready, "scheme": self.tables.get(scheme, scheme)}
            for tensor, ready, scheme in zip(
                self.of.step.tensors, self.of.step.ready, self.found.best.schemes, strict=True
            )
        ]
        others = {name: each.to_json() for name, each in self.found.others.items()}
        return {
            "ranks": self.size,
            "network": self.where,
            "computing": self.of.step.computing,
            "groups": self.groups,
            "best": self.found.best.to_json(),
            "others": others,
            "tensors": tensors,
            "tried": self.found.tried,
            "predicted_calls": self.predicted,
            "seconds_of_search": self.took,
            "pruned": list(self.found.pruned),
            "notes": list(self.notes),
        }


def _row(name: str, each: StrategyResult, least: float) -> dict[str, str]:
    return {
        "strategy": name,
        "seconds": seconds_text(each.seconds),
        "ratio": f"{each.seconds / least:.3f}" if least else "1",
        "exposed": seconds_text(each.exposed),
        "by computing": seconds_text(each.exposed_computing),
        "groups": str(len(each.ends) + 1),
    }


def tune_strategy(
    of: ModelStep,
    candidates: SchemeChoice,
    network: Network,
    calibration: Calibration,
    most_groups: int = 2,
    progress: Callable[[str], None] = lambda _: None,
    host: Calibration | None = None,
) -> TunedStrategy:
    """Return the best strategy for ``of`` with ``candidates``; sparse gradients by the best of those of ``auto``.

    ``host``: the calibration of the processors beside GPUs, which may sum in place of these.
    """
    before = perf_counter()
    table = SchemeTable(candidates.plans, network, calibration, host)
    fixed, tables = {}, {}
    for at, profile in of.tables.items():
        progress(of.step.tensors[at].name)
        both = [(name, plan) for name, plan in candidates_of_auto(network.size)]
        both += [(name + ON_HOST, plan) for name, plan in both if host]
        labels = {f"sparse {at} by {name}": name for name, _ in both}
        for label, (_, plan) in zip(labels, both, strict=True):
            table.fix(label, plan, profile)
        fixed[at] = min(labels, key=lambda label: table.fixed[label].least)
        tables[fixed[at]] = labels[fixed[at]]
    found = search(of.step, table, fixed, most_groups, progress=progress)
    took = perf_counter() - before
    where, notes = network.name, tuple(filter(None, (calibration.note, *table.host_notes)))
    return TunedStrategy(of, found, tables, network.size, where, table.predicted, took, notes, candidates.texts)
