"""Templates use their inputs and no more, only the kind of a mapping reaches the code; headers of ``zenc.wire``."""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
from typing import get_args

import pytest
from jinja2 import Environment, meta, nodes

from tests.support.shipped import SHIPPED
from zenc.api import compile
from zenc.codegen.render import (
    KINDS,
    NOT_TARGETS,
    RENDERED,
    declared,
    environment,
    headers,
    include_dirs,
    render,
    rendered,
    template_names,
    templates_dir,
)
from zenc.errors import BuildError
from zenc.pipeline import rendered_for
from zenc.runtime.gpu.call_args import CallArgs, PhaseCount
from zenc.scheme.model import Contiguous, Mapping
from zenc.wire.constants import GOLDEN, WIRE_FORMATS
from zenc.wire.mix import ALL_BITS, mixed
from zenc.wire.structs import CALL, MESSAGE_HEADER, MESSAGE_HEADER_BYTES, Field, offset_of

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
    with pytest.raises(BuildError, match=r"error\[unknown-target\]"):
        render(Contiguous, "abacus")


def test_headers_are_rendered_where_compilers_find_them():
    for name in RENDERED:
        found = [folder / name.partition("/")[2] for folder in include_dirs("cuda")]
        (path,) = (path for path in found if path.is_file())
        path.write_text("rubbish")
        include_dirs("cuda")
        assert path.read_text("utf-8") == rendered()[name] == headers("cuda")[name]
    assert not any((templates_dir() / name).exists() for name in RENDERED), "they are not checked in"


def test_members_of_structs_are_laid_out_as_cpp_does():
    """Every field but an array is a machine word, so Python and C++ agree on offsets."""
    words = {"PhaseCount": 5 + 2 * len(WIRE_FORMATS), "char": 1 / 8}
    fields = [field for group in CALL.values() for field in group]
    assert ctypes.sizeof(PhaseCount) == 8 * words["PhaseCount"]
    assert ctypes.sizeof(CallArgs) == 8 * sum(words.get(field.kind, 1) * (field.length or 1) for field in fields)
    assert (offset_of(MESSAGE_HEADER, "bytes"), MESSAGE_HEADER_BYTES) == (16, 48)


def test_members_have_their_comments():
    made = declared((Field("u8", "a", "one"), Field("i64", "b"), Field("u32", "c", "x", 3)))
    assert made.splitlines() == ["    u8 a;  // one", "    i64 b;", "    u32 c[3];  // x"]


def test_the_first_numbers_of_a_stream():
    """Vigna's splitmix64.c gives these numbers from state 1234567."""
    states = [(1234567 + k * GOLDEN) & ALL_BITS for k in (1, 2, 3)]
    assert [mixed(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def undeclared(environment: Environment, template: str) -> set[str]:
    tree = environment.parse(environment.loader.get_source(environment, template)[0])
    declared = {node.target.name for node in tree.find_all(nodes.Assign)}
    included = [node.template.value for node in tree.find_all(nodes.Include)]
    inside = set().union(*(undeclared(environment, name) for name in included))
    return meta.find_undeclared_variables(tree) | (inside - declared)
