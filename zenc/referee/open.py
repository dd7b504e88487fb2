"""Any plan of another program -> its verdict; a file's kind is recognised by its contents, not by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from zenc.common.untrusted import open_file
from zenc.common.wording import count
from zenc.errors import Diagnostic, PlanError, Source, VerificationError
from zenc.referee.judge import Transfer, judge
from zenc.referee.model import ForeignPlan
from zenc.referee.shares import judge_shares

MOST_BYTES = 1 << 25
_START = 1 << 12
Reader = Callable[[bytes, Source], ForeignPlan]
_MARKS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"<algo[\s>]"), "msccl"),
    (re.compile(rb"<Algo\b[^>]*\bnchunkspernode"), "forestcoll"),
    (re.compile(rb'"1-Epoch_Duration"|"6-Demand_Met"'), "teccl"),
    (re.compile(rb'"collective"\s*:'), "mscclpp"),
)


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the reader of the plan in a file, by its first bytes; None for a file of another kind, or none."""
    try:
        with open_file(path) as file:
            start = file.read(_START)
    except (OSError, ValueError):
        return None
    if not re.match(rb"(?:\xef\xbb\xbf)?\s*[<{]", start):
        return None
    return next((kind for mark, kind in _MARKS if mark.search(start)), None)


def read_plan(path: str | os.PathLike[str]) -> ForeignPlan:
    """Return the plan in the file ``path``.

    Raises PlanError: it can't be read, is too large, is no plan of a known kind, or is damaged.
    """
    source, kind = Source(os.fspath(path), ""), kind_of(path)
    try:
        with open_file(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PlanError(Diagnostic("unreadable-file", f"can't read {source.name!r}: {reason}")) from error
    if len(data) > MOST_BYTES:
        message = f"{source.name} is too large for a plan: more than {MOST_BYTES >> 20} MiB"
        raise PlanError(Diagnostic("plan-too-large", message))
    source = Source(source.name, data.decode("utf-8-sig", "replace"))
    if kind is None:
        message = f"{source.name} holds no plan that zenc knows"
        help = "it reads MSCCL's XML, MSCCL++'s and TE-CCL's JSON, and ForestColl's trees"
        raise PlanError(Diagnostic("unknown-plan", message, help=help))
    return _reader(kind)(data, source)


def _reader(kind: str) -> Reader:
    from zenc.referee import flows, msccl, mscclpp

    readers = {
        "msccl": msccl.read,
        "mscclpp": mscclpp.read,
        "teccl": flows.read_teccl,
        "forestcoll": flows.read_forestcoll,
    }
    return readers[kind]


@dataclass(frozen=True, slots=True, repr=False)
class PlanReport:
    """The proof of a plan of another program: what it is, and what zenc warns of.

    ``transfers`` are the chunks that travel, in an order of the run.
    """

    kind: ClassVar[Literal["plan"]] = "plan"
    plan: ForeignPlan
    warnings: tuple[Diagnostic, ...]
    transfers: tuple[Transfer, ...]

    def __repr__(self) -> str:
        return f"<zenc.PlanReport {self.plan.name}, {self.plan.goal.collective} of {self.plan.goal.size} gpus>"

    @property
    def name(self) -> str:
        """The name of the plan; empty where its format has none."""
        return self.plan.name

    @property
    def places(self) -> tuple[str, ...]:
        """Places of the output: in place of the input, or out of place."""
        return tuple("in place" if mode else "out of place" for mode in self.plan.in_place)

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON data."""
        goal, plan = self.plan.goal, self.plan
        return {
            "name": plan.name,
            "format": plan.format,
            "collective": goal.collective,
            "ranks": goal.size,
            "chunks": goal.whole,
            "places": list(self.places),
            "blocks": len(plan.blocks),
            "steps": plan.length,
            "transfers": len(self.transfers),
            "diagnostics": [warning.to_json() for warning in self.warnings],
        }

    def lines(self, file: str) -> list[str]:
        """Return the report in words, as that of ``file``."""
        goal, plan = self.plan.goal, self.plan
        of = f"{plan.format}, {goal.collective} of {count(goal.whole, 'chunk')} among {count(goal.size, 'gpu')}"
        sizes = f"{count(len(plan.steps), 'step')} in {count(len(plan.blocks), 'thread block')}"
        sizes = count(plan.length, "flow") if plan.demands else sizes
        return [f"{file}: {plan.name or 'the plan'} is proved ({of}, {' and '.join(self.places)}; {sizes})"]


def check_plan(path: str | os.PathLike[str]) -> PlanReport:
    """Prove the plan of another program in ``path``.

    Raises PlanError for a file that is no such plan, and VerificationError with its mistakes in the terms of the file.
    """
    plan = read_plan(path)
    found, transfers = list(plan.warnings), tuple[Transfer, ...]()
    for mode in plan.in_place:
        verdict = judge_shares(plan) if plan.demands else judge(plan, mode)
        said = f" ({'in place' if mode else 'out of place'})" if len(plan.in_place) > 1 else ""
        found += [
            Diagnostic(one.id, one.message + said, one.span, one.notes, one.help, one.severity) for one in verdict.found
        ]
        transfers = transfers or verdict.transfers
    if any(one.severity == "error" for one in found):
        raise VerificationError(found)
    return PlanReport(plan, tuple(found), transfers)
