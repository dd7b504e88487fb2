"""The templates: their inputs are exactly what they use, and only the kind of mapping reaches the generated code."""

from __future__ import annotations

import dataclasses
import difflib
from typing import get_args

import pytest

from tests.support.shipped import SHIPPED
from tests.support.templates import undeclared
from zenc.api import compile
from zenc.codegen.render import KINDS, NOT_TARGETS, environment, render, template_names, templates_dir
from zenc.errors import BuildError
from zenc.pipeline import rendered_for
from zenc.scheme.model import Contiguous, Mapping

TARGETS = sorted(path.name for path in templates_dir().iterdir() if path.is_dir() and path.name not in NOT_TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_templates_use_the_kind_of_mapping_and_nothing_else(target):
    assert set().union(*(undeclared(environment(), name) for name in template_names(target))) == {"mapping"}
    assert set(KINDS) == set(get_args(Mapping))


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "scheme, params", [("balanced", {"seed": 1}), ("zen", {"k": 2, "r1": 1.5, "r2": 0.1, "seed": 1})]
)
def test_no_number_of_a_mapping_is_compiled(target, scheme, params):
    """Code is the same whatever the numbers of a mapping, and for any number of ranks."""
    plan, changed = (compile(scheme, target="plan", **how).plan for how in ({}, {"ranks": 4, "params": params}))
    assert changed.mapping != plan.mapping
    assert rendered_for(changed, target) == rendered_for(plan, target)


HOSTILE = 'quote " \\ ??/ \n#error "\u00e9\u2028" */ {{ seed }} {% raw %} }'


def test_no_text_of_a_user_reaches_the_code():
    plan = compile("balanced", target="plan").plan
    tier = dataclasses.replace(plan.tiers[0], name=HOSTILE, communication=HOSTILE)
    hostile = dataclasses.replace(plan, scheme=HOSTILE, doc=HOSTILE, tiers=(tier,))
    assert rendered_for(hostile, "cpu") == rendered_for(plan, "cpu")


def test_unknown_targets_are_refused():
    with pytest.raises(BuildError) as raised:
        render(Contiguous, "abacus")
    assert raised.value.diagnostics[0].id == "unknown-target"
