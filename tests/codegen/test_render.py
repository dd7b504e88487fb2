"""Templates: their inputs are exactly what they use, and generated code depends on the mapping only."""

from __future__ import annotations

import dataclasses
import difflib
from math import inf, nan
from typing import get_args

import pytest

from tests.support.shipped import SHIPPED
from tests.support.templates import undeclared
from zenc.api import compile
from zenc.codegen.render import NOT_TARGETS, UnitInputs, environment, real, render, template_names, templates_dir
from zenc.errors import BuildError
from zenc.pipeline import rendered_for
from zenc.scheme.model import Contiguous, Mapping

TARGETS = sorted(path.name for path in templates_dir().iterdir() if path.is_dir() and path.name not in NOT_TARGETS)


def test_inputs_are_exactly_the_undeclared_variables():
    """The union over targets counts, since on a GPU the block of a permutation comes with a call."""
    fields = {field.name for field in dataclasses.fields(UnitInputs)}
    assert set().union(*(undeclared(environment(), name) for of in TARGETS for name in template_names(of))) == fields


@pytest.mark.parametrize("target", TARGETS)
def test_targets_have_equal_stems(target):
    def stems(of):
        return {name.rpartition("/")[2].partition(".")[0] for name in template_names(of)}

    assert stems("cpu") <= stems(target)


@pytest.mark.parametrize(("target", "file", "suffix"), [("cpu", "kernels.cpp", ""), ("cuda", "kernels.cu", ".cu")])
def test_what_a_mapping_changes_of_the_code_is_as_it_was(assert_golden, target, file, suffix):
    plans = [compile(scheme, target="plan").plan for scheme in (*SHIPPED, "oscar_hw")]
    by_mapping = {type(plan.mapping): rendered_for(plan, target)[file] for plan in plans}
    contiguous = by_mapping.pop(Contiguous)
    assert len(by_mapping) == len(get_args(Mapping)) - 1
    for mapping, code in by_mapping.items():
        changes = difflib.unified_diff(
            contiguous.splitlines(), code.splitlines(), "contiguous", mapping.__name__, n=1, lineterm=""
        )
        assert_golden(f"{mapping.__name__.lower()}.kernels{suffix}.diff", "\n".join(changes))


def test_nothing_but_the_mapping_decides_about_the_code():
    assert compile("balanced", ranks=4).sources == compile("balanced", ranks=8).sources
    contiguous = {name: compile(name).sources for name in SHIPPED if compile(name).plan.mapping == Contiguous()}
    assert len(contiguous) > 1
    assert all(sources == next(iter(contiguous.values())) for sources in contiguous.values())
    assert compile("balanced", params={"seed": 1}).sources != compile("balanced", params={"seed": 2}).sources


HOSTILE = 'quote " \\ ??/ \n#error "\u00e9\u2028" */ {{ seed }} {% raw %} }'


def test_no_text_of_a_user_reaches_the_code():
    plan = compile("balanced").plan
    tier = dataclasses.replace(plan.tiers[0], name=HOSTILE, communication=HOSTILE)
    hostile = dataclasses.replace(plan, scheme=HOSTILE, doc=HOSTILE, tiers=(tier,))
    assert render(UnitInputs.of(hostile)) == render(UnitInputs.of(plan))


def test_unknown_targets_are_refused():
    with pytest.raises(BuildError) as raised:
        render(UnitInputs("contiguous"), "abacus")
    assert raised.value.diagnostics[0].id == "unknown-target"


MEMORIES = ((0, 2.0, 0.2), (1 << 31, 2.0, 0.2), (3, -1.0, 0.2), (3, nan, 0.2), (3, inf, 0.2), (3, 2.0, -0.1))


@pytest.mark.parametrize(
    "mapping", [*(("permutation", seed) for seed in (-1, 1 << 64)), *(("hierarchical_hash", 1, *m) for m in MEMORIES)]
)
def test_seeds_without_64_bits_and_memories_that_cannot_be_are_refused(mapping):
    with pytest.raises(BuildError) as raised:
        render(UnitInputs(*mapping))
    assert raised.value.diagnostics[0].id == "unsafe-text"


def test_the_code_of_a_hash_depends_on_all_of_it_and_on_nothing_else():
    sources = [compile("zen", params=params).sources for params in
               ({}, {"k": 2}, {"r1": 1.5}, {"r2": 0.1}, {"seed": 1})]  # fmt: skip
    assert all(mine != other for i, mine in enumerate(sources) for other in sources[:i])
    assert compile("zen", ranks=4).sources == sources[0]


@pytest.mark.parametrize("number", [0.1, 2.0, 1e-300, 64.0, 1 / 3])
def test_numbers_with_a_fraction_are_exact(number):
    assert float(real(number)) == number
