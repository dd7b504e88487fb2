"""Sequences as C++: readable, made of numbers alone, and from inputs that the template uses, each of them."""

from __future__ import annotations

import dataclasses
import re

import pytest
from jinja2 import meta

from tests.support.plans import plan_of
from tests.support.shipped import plan_of_shipped
from zenc.codegen.render import environment
from zenc.codegen.sequence_code import TEMPLATES, SequenceInputs, lowered, render_sequences


@pytest.mark.parametrize("name", ["balanced", "dense_ring", "holders"])
def test_generated_code_is_as_it_was(assert_golden, name):
    code = render_sequences([lowered(plan_of_shipped(name), 4, 1)])["sequence.cpp"]
    assert_golden(f"{name}.sequence.cpp", code)


@pytest.mark.parametrize("template", TEMPLATES.values())
def test_inputs_are_exactly_the_undeclared_variables(template):
    render_sequences([lowered(plan_of_shipped("balanced"), 2, 0)])  # registers the filters
    source, _, _ = environment().loader.get_source(environment(), template)
    used = meta.find_undeclared_variables(environment().parse(source))
    assert used == {field.name for field in dataclasses.fields(SequenceInputs)}


def test_no_text_of_a_user_reaches_the_code():
    """Names of schemes, tiers and parameters are the user's; so is every comment."""
    text = (
        "scheme evil_inner { communication: ring aggregation: one_shot partition: parallelism balance: imbalanced } "
        "scheme evil_outer { communication: ring aggregation: incremental partition: parallelism balance: imbalanced } "
        "scheme evil { tier evil_tier(2): evil_inner tier evil_top: evil_outer }"
    )
    plan = plan_of(text, scheme="evil")
    code = render_sequences([lowered(plan, 4, rank) for rank in range(4)])["sequence.cpp"]
    assert "evil" not in code
    assert re.findall(r'"[^"\n]*"', code) == ['"zenc_host/call/entry.h"', '"C"']


def test_several_ranks_share_a_unit():
    code = render_sequences([lowered(plan_of_shipped("balanced"), 3, rank) for rank in (0, 2)])["sequence.cpp"]
    assert re.findall(r"void (rank_\d)", code) == ["rank_0", "rank_2"]
    assert "run(*call, 3, PROGRAMS, 2)" in code
