"""The meaning of all shipped texts on 1 to 9 ranks, in ``tests/golden/oracle.json``: code that moves changes nothing.

A line a scheme has digests of its plan, of the programs of all ranks and of each rank's bytes for drawn gradients, and
of two sums if it is lossy (``sums.json`` has the others); a line a strategy or averaging has the digest of its report.
``pytest --update-golden`` writes the file anew.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import zenc
from tests.runtime.jobs import bits
from tests.runtime.test_golden_sums import CASES, digest, gradient
from tests.support.local import collectives, run_all
from tests.support.shipped import ALL, LOSSY, plan_of_shipped
from zenc.analysis.exact_traffic import weigh
from zenc.gradients.index_sets import drawn
from zenc.gradients.spec import GradientSpec
from zenc.kinds import open as open_text
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed
from zenc.rank_ir.lower import lower_all
from zenc.rank_ir.text import ShownProgram
from zenc.verify.proof import verify

SIZES = range(1, 10)
SUMMED = 3
"""Ranks of the groups that sum by lossy schemes."""
DRAWN = GradientSpec(1500, 4, "f32", 0.05, zipf=1.1)
ROOT = Path(__file__).resolve().parents[2]
GOLDEN, SCHEMES = ROOT / "tests" / "golden" / "oracle.json", ROOT / "schemes"


def programs(name: str, plan: Plan, size: int) -> str:
    slots = (DRAWN.units // plan.parts(size),) * plan.parts(size)
    found = hashlib.sha256()
    for program in lower_all(plan, size):
        found.update(ShownProgram(name, program, slots, DRAWN.width, 4).text().encode())
    return found.hexdigest()[:16]


def sums(name: str) -> list[str]:
    ranks = collectives(zenc.compile(name, ranks=SUMMED), SUMMED)
    found = []
    for case in (CASES[5], CASES[5]):  # the second has the residual of the first
        given = [gradient(case, rank, SUMMED) for rank in range(SUMMED)]
        totals = {bits(total) for total in run_all(ranks, given, name="w")}
        assert len(totals) == 1, f"{name} among {SUMMED}: ranks end with different sums"
        found += [totals.pop()[:16]]
    return found


def traffic(plan: Plan, size: int) -> str:
    """Return the digest of each rank's bytes and messages, by phase."""
    found = weigh(plan, verify(plan, size)[0], drawn(DRAWN, size))
    return digest({kind: [of.of_rank(rank) for rank in range(size)] for kind, of in found.traffic.items()})


def of_scheme(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    plan = plan_of_shipped(name)
    found: dict[str, Any] = {"plan": plan.digest[:16]}
    for size in allowed(plan, sizes):
        found[f"{size} ranks"] = [programs(name, plan, size), traffic(plan, size)]
    return {**found, f"sums of {SUMMED} ranks": sums(name)} if name in LOSSY else found


def of_reports() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("strategies", "averagings"):
        for path in sorted((SCHEMES / kind).glob("*.zen")):
            report = open_text(path).check().to_json()
            del report["diagnostics"]  # they have paths of this machine
            yield f"{kind} {path.stem}", {"report": digest(report)}


@pytest.mark.parametrize("sizes", [(3, 4, 8), pytest.param(SIZES, marks=pytest.mark.slow)])
def test_all_mean_what_they_meant(
    request: pytest.FixtureRequest, assert_golden: Callable[[str, str], None], sizes: Sequence[int]
) -> None:
    torch.set_num_threads(1)
    found = {**{f"scheme {name}": of_scheme(name, sizes) for name in ALL}, **dict(of_reports())}
    if sizes != SIZES or not request.config.getoption("--update-golden"):
        left = {f"{size} ranks" for size in SIZES if size not in sizes}
        known = json.loads(GOLDEN.read_text(encoding="utf-8"))
        assert (
            changes({name: {k: v for k, v in of.items() if k not in left} for name, of in known.items()}, found) == []
        )
        return
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(of)}" for name, of in found.items())
    assert_golden("oracle.json", "{\n" + lines + "\n}")


def changes(known: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return what has changed, a line each: ``scheme balanced, 4 ranks: programs, bytes``."""
    told = []
    for name in sorted(known.keys() | found.keys()):
        was, now = known.get(name, {}), found.get(name, {})
        for key in [key for key in {**was, **now} if was.get(key) != now.get(key)]:
            parts = zip(("programs", "bytes"), was.get(key, [0, 0]), now.get(key, [0, 0]), strict=False)
            what = [part for part, one, other in parts if one != other] if key.endswith(" ranks") else []
            told.append(f"{name}, {key}" + (f": {' and '.join(what)}" if what and "sums" not in key else ""))
    return told


def test_a_change_is_named_with_its_scheme_and_ranks() -> None:
    known = {"scheme ring": {"plan": "a", "4 ranks": ["b", "c"], "sums of 3 ranks": ["d"]}}
    found = {"scheme ring": {"plan": "e", "4 ranks": ["b", "f"], "sums of 3 ranks": ["g"]}}
    assert changes(known, found) == ["scheme ring, plan", "scheme ring, 4 ranks: bytes", "scheme ring, sums of 3 ranks"]
    assert changes(known, {}) == [
        "scheme ring, plan",
        "scheme ring, 4 ranks: programs and bytes",
        "scheme ring, sums of 3 ranks",
    ]
