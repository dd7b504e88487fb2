"""Advice: whether zenc is worth it for a model, by prediction, against DDP's own ways and no communication at all.

load x ranks x links --predict--> Way* --> Advice
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from zenc.analysis.compression_text import sentences
from zenc.analysis.contribution import guesses
from zenc.analysis.fit import ensure_room
from zenc.common.wording import aligned, seconds_text, size_text
from zenc.errors import TopologyError, VerificationError
from zenc.gradients.profile_generators import uniform
from zenc.language.files import load_file, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import ensure_all
from zenc.scheme.library import shipped
from zenc.scheme.resolve import resolve
from zenc.scheme.units import bandwidth_text
from zenc.simulator.calibration import Calibration
from zenc.simulator.compression_work import note
from zenc.simulator.network import Network
from zenc.simulator.predict import Prediction, network, predict_on
from zenc.simulator.sweep import Planner
from zenc.simulator.training import ddp
from zenc.simulator.training.model_profile import StepWorkload
from zenc.topology.model import Topology

ZENC, SPARSE, DENSE, NOTHING = "zenc, auto", "DDP, sparse", "DDP, dense", "no communication"
WITHIN = 1.1
"""The most, as a factor, that predicted ratios were off where they were compared with measurements."""
LITTLE = 1.05
"""The speedup of a step up to which it counts as no gain."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to synchronise: ``seconds`` of a step's calls, one after another; bytes that the busiest rank ``sent``.

    ``schemes``: the table -> the scheme that sums it. ``missing``: the reason why the way is not possible here; ""
    where it is. ``loses``: the losses of its sums, in sentences, where they are not those of the gradients.
    """

    name: str
    seconds: float = 0.0
    sent: float = 0.0
    schemes: tuple[tuple[str, str], ...] = ()
    missing: str = ""
    loses: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; seconds of a step's calls, bytes of the busiest rank."""
        own = {name: getattr(self, name) for name in ("name", "seconds", "sent", "missing")}
        return {**own, "schemes": dict(self.schemes), "loses": list(self.loses)}


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """Advice for ``load`` on ``size`` ranks, with the seconds of each of ``ways``; ``notes`` name the guesses.

    ``answer`` is ``yes`` or ``no``, and ``verdict`` a sentence that begins with it, and says by how much.
    """

    load: StepWorkload
    size: int
    where: str
    ways: tuple[Way, ...]
    notes: tuple[str, ...]

    def way(self, name: str) -> Way:
        """Return the way called ``name``; raises StopIteration for any other."""
        return next(way for way in self.ways if way.name == name)

    @property
    def rival(self) -> Way:
        """The quicker one of DDP's own ways."""
        return min((w for w in (self.way(SPARSE), self.way(DENSE)) if not w.missing), key=lambda way: way.seconds)

    @property
    def ratio(self) -> float:
        """The seconds of synchronisation by DDP's better way, over those of zenc."""
        return self.rival.seconds / max(self.way(ZENC).seconds, 1e-12)

    def step(self, way: Way) -> float | None:
        """Return seconds of a step, if nothing hides behind the backward pass; None where computing is unknown."""
        return None if self.load.computing is None else self.load.computing + way.seconds

    def speedup(self, way: Way) -> float | None:
        """Return the seconds of a step by DDP's better way, over those of this way."""
        step, before = self.step(way), self.step(self.rival)
        return None if step is None or before is None else before / max(step, 1e-12)

    def fewer_bytes(self, way: Way) -> float | None:
        """Return the bytes that DDP sends with dense gradients, over those of this way; None where it sends nothing."""
        return self.way(DENSE).sent / way.sent if way.sent else None

    @property
    def lossy(self) -> tuple[Way, ...]:
        """The ways that were asked for, and that lose something."""
        return tuple(way for way in self.ways if way.loses)

    @property
    def answer(self) -> str:
        """``yes``, or ``no`` where steps are less than 1.05 times as fast, or synchronisation less than 1.1 times."""
        speedup = self.speedup(self.way(ZENC))
        if not self.load.tables or self.size < 2 or self.ratio < WITHIN:
            return "no"
        return "no" if speedup is not None and speedup < LITTLE else "yes"

    @property
    def verdict(self) -> str:
        """The answer, with its reason."""
        return f"{self.answer}: {self._because()}"

    def _because(self) -> str:
        if not self.load.tables:
            return "no gradient is mostly rows of zeros, and DDP's own all-reduce is right for all others"
        if self.size < 2:
            return "one rank has nobody to synchronise with"
        fewer, rival = f"{self.ratio:.2g} times fewer seconds of synchronisation than {self.rival.name}", self.rival
        if self.ratio < 1:
            return f"{rival.name} takes {seconds_text(rival.seconds)}, and zenc {seconds_text(self.way(ZENC).seconds)}"
        if self.ratio < WITHIN:
            return (
                f"{self.ratio:.3g} times fewer seconds of synchronisation than {rival.name}, "
                f"and predictions are off by up to {WITHIN:g} times"
            )
        bound, speedup = self.speedup(self.way(NOTHING)), self.speedup(self.way(ZENC))
        if bound is None or speedup is None:
            return fewer
        at_most = f"{bound:.3g} times without any communication"
        if speedup < LITTLE:
            return f"{fewer}, but steps only {speedup:.3g} times as fast ({at_most})"
        return f"{fewer}; steps {speedup:.2g} times as fast ({at_most})"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: seconds, and bytes of the busiest rank."""
        ways = [
            {**w.to_json(), "step": self.step(w), "speedup": self.speedup(w), "fewer_bytes": self.fewer_bytes(w)}
            for w in self.ways
        ]
        own = {"answer": self.answer, "verdict": self.verdict, "ranks": self.size, "network": self.where}
        tables = [table.profile.name for table in self.load.tables]
        of_load = {"tables": tables, "rest": self.load.rest, "computing": self.load.computing}
        return {**own, **of_load, "ways": ways, "notes": list(self.notes)}

    def __repr__(self) -> str:
        return f"<zenc.Advice for {self.size} ranks on {self.where}: {self.verdict}>"

    def __str__(self) -> str:
        return text(self)


def advise(
    load: StepWorkload,
    size: int,
    topology: Topology | None,
    calibration: Calibration,
    on_gpu: bool = False,
    progress: Progress = lambda _: None,
    asked_for: Mapping[str, Planner] = MappingProxyType({}),
) -> Advice:
    """Predict a step of ``load`` on ``size`` ranks, on ``topology`` or by links of the calibration.

    ``on_gpu``: ranks speak NCCL, which has no sparse all-reduce. ``asked_for``: other schemes, by name, which may lose
    something: they are compared, and never advised. Raises CostError (``wrong-topology-size``).
    """
    way = network(topology, size, calibration)
    rest = ddp.dense(load.rest / 4, "f32", way, calibration, on_gpu) if load.rest else None
    asked = _Asked(load, topology, way, calibration, on_gpu, rest, progress)
    others, told = list[Way](), list[str]()
    for name, planner in asked_for.items():
        others.append(asked.by_scheme(name, planner, told))
    others.sort(key=lambda each: (bool(each.missing), each.seconds))
    ways = (Way(NOTHING), asked.by_zenc(), asked.by_sparse(), asked.by_dense(), *others)
    notes = [
        "predicted, not measured; nothing is taken to be hidden behind the backward pass",
        *([calibration.note] if calibration.note else []),
        *told,
    ]
    where = topology.name if topology else f"one switch, {bandwidth_text(calibration.bandwidth)} each way"
    return Advice(load, size, where, ways, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Asked:
    load: StepWorkload
    topology: Topology | None
    network: Network
    calibration: Calibration
    on_gpu: bool
    rest: Prediction | None
    progress: Progress

    def by_zenc(self) -> Way:
        """Return the way with each table by the cheapest candidate of ``auto``."""
        return self._way(ZENC, self._cheapest([]))

    def by_scheme(self, name: str, planner: Planner, told: list[str]) -> Way:
        """Return the way with all gradients by the scheme ``name``, but tables by ``auto`` where that is cheaper.

        Guesses are added to ``told``.
        """
        self.progress(f"all gradients by {name}")
        try:
            plan = planner(self.network.size)
            if self.topology:
                ensure_room(plan, self.topology, [each.profile for each in self.load.tables])
        except (VerificationError, TopologyError) as error:
            return Way(name, missing=error.diagnostics[0].message)
        dense = uniform(1.0, max(1, round(self.load.rest / 4)), 1)
        rest = predict_on(plan, dense, self.network, self.calibration) if self.load.rest else None
        if plan.is_lossy:
            told.append("; ".join([f"{name}: {note(plan, self.calibration)}", *guesses(plan)]))
        found = replace(self, rest=rest)._way(name, self._cheapest([plan]))
        return replace(found, loses=tuple(sentences(plan)))

    def _cheapest(self, more: list[Plan]) -> list[Prediction]:
        """Predict each table by the cheapest candidate of ``auto``, or of ``more``."""
        plans, best = [*dict(candidates_of_auto(self.network.size)).values(), *more], []
        for table in self.load.tables:
            self.progress(f"{table.profile.name} by zenc")
            found = [predict_on(plan, table.profile, self.network, self.calibration) for plan in plans]
            best.append(min(found, key=lambda each: each.seconds))
        return best

    def by_sparse(self) -> Way:
        if self.on_gpu:
            return Way(SPARSE, missing="NCCL sums no sparse tensors")
        self.progress("DDP with sparse gradients")
        return self._way(
            SPARSE, [ddp.sparse(each.profile, self.network, self.calibration) for each in self.load.tables]
        )

    def by_dense(self) -> Way:
        self.progress("DDP with dense gradients")
        profiles = [table.profile for table in self.load.tables]
        with_what = self.network, self.calibration, self.on_gpu
        return self._way(DENSE, [ddp.dense(of.units * of.width, of.dtype, *with_what) for of in profiles])

    def _way(self, name: str, found: list[Prediction]) -> Way:
        each = [*found, *([self.rest] if self.rest else [])]
        names = [table.profile.name for table in self.load.tables]
        schemes = tuple((table, of.scheme) for table, of in zip(names, found, strict=True))
        return Way(name, sum(of.seconds for of in each), sum(of.sent for of in each), schemes)


def candidates_of_auto(size: int) -> Iterator[tuple[str, Plan]]:
    """Yield the candidates of ``auto`` that run on ``size`` ranks."""
    (auto,) = (entry for entry in shipped() if entry["name"] == "auto")
    for name in auto["candidates"]:
        plan = lower(resolve(load_file(locate(name)), name, {}, {})[0])
        try:
            ensure_all(plan, size)
        except VerificationError:
            continue
        yield name, plan


_HEAD = ("way", "synchronisation", "of zenc's", "step", "as fast", "busiest sends", "sums tables by")


def text(of: Advice) -> str:
    """Return the advice as text for a terminal: the verdict, the table of ways, and help."""
    return "\n".join([of.verdict, "", *_about(of), *_table(of), "", *_lossy(of), *_what_to_do(of), *of.notes])


def _about(of: Advice) -> Iterator[str]:
    tables = sum(table.profile.units * table.profile.unit_bytes for table in of.load.tables)
    rest = f", and {size_text(of.load.rest)} of other gradients" if of.load.rest else ""
    count = len(of.load.tables)
    yield f"{of.size} ranks on {of.where}; {count} table{'s' * (count != 1)} of {size_text(tables)}{rest}"
    if seen := of.load.observed:
        yield (
            f"observed on {seen.ranks} ranks by {seen.backend}: {seconds_text(seen.seconds_step)} a step, "
            f"{seen.exposed_share:.0%} of it waiting for synchronisation"
        )


def _table(of: Advice) -> list[str]:
    rows = [_HEAD, *(_row(of, way) for way in of.ways)]
    kept = [i for i in range(len(_HEAD)) if any(row[i] for row in rows[1:])]
    numbers = [place for place, i in enumerate(kept) if 0 < i < len(_HEAD) - 1]
    return aligned([[row[i] for i in kept] for row in rows], numbers)


def _lossy(of: Advice) -> Iterator[str]:
    if not of.lossy:
        return
    yield "asked for, and never advised: sums are not those of gradients, and only training shows what that does"
    for way in of.lossy:
        fewer = of.fewer_bytes(way)
        bytes = f"{fewer:.3g} times fewer bytes than {DENSE}; " if fewer else ""
        yield f"  {way.name}: {bytes}{'; '.join(way.loses)}"
    yield ""


def _row(of: Advice, way: Way) -> tuple[str, ...]:
    if way.missing:
        return (way.name, "-", "", "", "", "", way.missing)
    step, speedup, zenc = of.step(way), of.speedup(way), of.way(ZENC).seconds
    return (
        way.name,
        seconds_text(way.seconds),
        f"{way.seconds / zenc:.3g}" if zenc else "",
        "" if step is None else seconds_text(step),
        "" if speedup is None else f"{speedup:.3g}",
        size_text(way.sent),
        ", ".join(dict.fromkeys(scheme for _, scheme in way.schemes)) if way.name not in (SPARSE, DENSE) else "",
    )


def _what_to_do(of: Advice) -> Iterator[str]:
    if not of.load.tables or of.size < 2 or of.ratio < 1:
        return
    dense = [table.profile.name for table in of.load.tables if table.is_dense]
    more = f', "auto", dense={dense!r}' if dense else ', "auto"'
    yield f"in the training script: handle = zenc.attach(ddp_model{more})"
    if of.load.computing is None:
        yield "what whole steps gain: give --computing, or the profile of zenc.attach(ddp_model, dry_run=True)"
