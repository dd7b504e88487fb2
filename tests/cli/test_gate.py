"""Verbs agree with ``zenc check`` on a scheme and a topology."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import zenc
from tests.cli.conftest import Zenc
from zenc import api, forecast
from zenc.errors import ZencError
from zenc.gradients.profile_generators import uniform
from zenc.gradients.spec import GradientSpec
from zenc.report.findings import findings
from zenc.scheme.library import shipped
from zenc.select.candidates import of_files
from zenc.select.search import _Search
from zenc.simulator.calibration import DEFAULTS
from zenc.simulator.sweep import SweepPoint
from zenc.topology.model import Topology

SCHEMES = [(entry["name"], bool(entry["candidates"])) for entry in shipped()]
TOPOLOGIES = {
    "as deployed": "nodes(2, gpus = 8)",
    "smaller machines": "nodes(2, gpus = 4)",
    "not whole groups": "nodes(3, gpus = 3)",
    "no way across": "topology t { levels: gpu(3) link gpu(0) - gpu(1): 1 GB/s link gpu(1) - gpu(2): 1 GB/s }",
    "little memory": "topology t { like nodes(1, gpus = 4) memory gpu: 1 kB }",
}
EXPECTED = {
    "as deployed": set(),
    "smaller machines": {"tier-mismatch"},
    "not whole groups": {"tiers-do-not-divide", "unmet-requirement"},
    "no way across": {"no-route", "tiers-do-not-divide", "unmet-requirement"},
    "little memory": {"memory-exceeded", "tiers-do-not-divide"},
}
SPEC = GradientSpec(2000, 64, "f32", 0.05)
PROFILE = uniform(SPEC.density, SPEC.units, SPEC.width, SPEC.dtype)


def _reported(name: str, topology: Topology) -> object:
    place = SweepPoint(topology.size, {"it": PROFILE}, topology, DEFAULTS, {})
    return findings([name], place)


VERBS: dict[str, Callable[[str, Topology], object]] = {
    "explain": lambda name, on: api.explain(name, topology=on, units=SPEC.units, density=SPEC.density),
    "explain --program": lambda name, on: api.rank_programs(name, topology=on, units=SPEC.units),
    "compile": lambda name, on: api.compile(name, topology=on, target="plan"),
    "draw": lambda name, on: api.draw(name, topology=on, gradient=SPEC),
    "simulate": lambda name, on: forecast.simulate(name, PROFILE, topology=on),
    "report": _reported,
}
OF_ONE = ("draw", "simulate")
"""Verbs of a single scheme, which refuse one that chooses among others."""
DEAR = ("explain", "draw", "simulate", "report")
"""Verbs that try every fourth accepted scheme only, to be quick."""


def said(call: Callable[[], object]) -> set[str]:
    """Return the errors of a call, without the sentence that a sweep puts before them."""
    try:
        call()
    except ZencError as error:
        return {each.id for each in error.diagnostics if each.severity == "error"} - {"nothing-to-simulate"}
    return set()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("where", TOPOLOGIES)
def test_each_verb_refuses_what_check_refuses(tmp_path: Path, where: str) -> None:
    (tmp_path / "it.zen").write_text(TOPOLOGIES[where])
    own = TOPOLOGIES[where].startswith("topology")
    on = zenc.load_topology(str(tmp_path / "it.zen") if own else TOPOLOGIES[where])
    refused = set[str]()
    for at, (name, choosing) in enumerate(SCHEMES):
        expected = said(partial(api.check, name, topology=on, gradient=SPEC))
        refused |= expected
        for verb, call in VERBS.items():
            if not (choosing and verb in OF_ONE) and (expected or at % 4 == 0 or verb not in DEAR):
                assert said(partial(call, name, on)) == expected, f"{verb} {name} on {on.name}"
    assert refused == EXPECTED[where]


def test_a_search_and_advice_leave_out_what_check_refuses() -> None:
    on = zenc.load_topology("nodes(2, gpus = 4)")
    search = _Search((PROFILE,), on.size, on, DEFAULTS, lambda _: None)
    search.try_all(list(of_files(["zen_cluster", "dense_ring"])))
    assert [each.draft.label for each in search.found] == ["dense_ring"]
    assert "a group of tier node has 8 ranks" in search.reasons[0]
    (asked,) = forecast.advise(PROFILE, topology=on, lossy="zen_cluster").ways[4:]
    assert "a group of tier node has 8 ranks" in asked.missing


@pytest.mark.parametrize("where", ["nodes(2, gpus = 4)", "nodes(3, gpus = 4)"])
def test_the_help_says_what_would_fit(zenc: Zenc, where: str) -> None:
    done = zenc("simulate", "zen_cluster", "--topology", where)
    assert done.returncode == 1
    found = re.search(r"--set (\w+=\d+) fits", done.stderr)
    assert found, done.stderr
    assert zenc("check", "zen_cluster", "--topology", where, "--set", found[1]).returncode == 0
    beside = zenc("simulate", "zen_cluster", "balanced", "--topology", where)
    assert beside.returncode == 0 and "\nbalanced " in beside.stdout
    assert "warning[ti" in beside.stderr and "zen_cluster is left out on" in beside.stderr
