"""Call sequences as they were, and templates that use their inputs and no more; headers of ``zenc.wire``."""

import ctypes
import dataclasses
import difflib
import json
import re
from typing import get_args

import pytest
from jinja2 import Environment, meta, nodes

from tests.rank_ir.test_lower import VARIANTS, programs
from tests.support.plans import plan_of
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.api import compile
from zenc.codegen.call_program import CODE, DATA, OwnerSubsets, SequenceInputs, Subset, call_program, render_sequence
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
from zenc.rank_ir import ir
from zenc.rank_ir.lower import lower, lower_all
from zenc.runtime.gpu.call_args import CallArgs, PhaseCount
from zenc.scheme.model import Contiguous, Mapping
from zenc.wire.constants import FULL_SPREAD, GOLDEN, WHOLE_PART, WIRE_FORMATS
from zenc.wire.mix import ALL_BITS, mixed
from zenc.wire.structs import CALL, MESSAGE_HEADER, MESSAGE_HEADER_BYTES, Field, offset_of


@pytest.mark.parametrize("name", ["balanced", "dense_ring", "holders"])
@pytest.mark.parametrize("file", [CODE, DATA])
def test_generated_sequences_are_as_they_were(assert_golden, name, file):
    assert_golden(f"{name}.{file}", render_sequence([lower(plan_of_shipped(name), 4, 1)], file))


@pytest.mark.parametrize("file", [CODE, DATA])
def test_templates_use_all_their_inputs_and_no_others(file):
    jinja = environment().overlay()
    jinja.filters.update(cpp=str, json=str, parts=str)
    source, _, _ = jinja.loader.get_source(jinja, f"cuda/host/{file}.j2")
    used = meta.find_undeclared_variables(jinja.parse(source))
    assert used <= {field.name for field in dataclasses.fields(SequenceInputs)} and "programs" in used


@pytest.mark.parametrize(("name", "size"), cases((1, 4, 8), SHIPPED))
def test_json_means_the_table_that_is_made_of_the_plan(name, size):
    every = lower_all(plan_of_shipped(name), size)
    data = json.loads(render_sequence(every, DATA))
    assert data["size"] == size and len(data["ranks"]) == size
    for of, program in zip(data["ranks"], map(call_program, every), strict=True):
        rows = {name: [list(row) for row in getattr(program, name)] for name in ("segments", "cuts")}
        statements = json.loads(json.dumps([[each.operation, *each.arguments] for each in program.statements]))
        expected = {**rows, "pieces": list(program.pieces), "statements": statements}
        assert of == {"rank": program.rank, "parts": program.parts, **expected}


def test_no_text_of_a_user_reaches_the_code():
    text = (
        "scheme evil_inner { communication: ring aggregation: one_shot partition: parallelism balance: imbalanced } "
        "scheme evil_outer { communication: ring aggregation: incremental partition: parallelism balance: imbalanced } "
        "scheme evil { tier evil_tier(2): evil_inner tier evil_top: evil_outer }"
    )
    every = lower_all(plan_of(text, scheme="evil"), 4)
    code = render_sequence(every)
    assert "evil" not in code + render_sequence(every, DATA)
    assert re.findall(r'"[^"\n]*"', code) == ['"zenc_host/table.h"', '"C"']


def test_several_ranks_share_a_unit():
    code = render_sequence(lower_all(plan_of_shipped("balanced"), 3, (0, 2)))
    assert re.findall(r"void (rank_\d)", code) == ["rank_0", "rank_2"]
    assert "run_loaded_or(*call, PROGRAMS, 2)" in code


def test_only_the_first_message_of_a_dense_ring_is_announced():
    statements = call_program(lower(plan_of_shipped("dense_ring"), 4, 1)).statements
    sent = [statement.arguments[-1] for statement in statements if statement.operation == "send"]
    assert sent == ["announced"] + 5 * ["unannounced"]


def test_numbers_of_the_program_are_those_of_tables():
    assert (ir.WHOLE, ir.FULL) == (WHOLE_PART, FULL_SPREAD)


def holders_of(subsets: tuple[Subset, ...], subset: Subset) -> tuple[int, ...]:
    """Return the ranks that hold each slot."""
    return tuple(subsets[piece].rank for piece in subset.pieces) or (subset.rank,)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
def test_subsets_of_one_rank_come_first_and_what_is_summed_has_bitmaps(communication, aggregation):
    for program in programs(communication, aggregation, 4):
        made = call_program(program)
        cuts = [dict(zip(("part", "rank", "marked", "first", "number"), row, strict=True)) for row in made.cuts]
        several = [cut["rank"] < 0 for cut in cuts]
        assert several == sorted(several)
        assert all(cut["marked"] and cut["number"] > 1 for cut in cuts if cut["rank"] < 0)
        assert all(cuts[piece]["marked"] for piece in made.pieces)
        for merge in [each for each in program.statements if isinstance(each, ir.Merge)]:
            assert all(cuts[made.segments[number][-1]]["marked"] for number in (merge.result, *merge.segments))
        assert [cuts[made.segments[number][-1]]["rank"] for number in program.expand.segments] == [0, 1, 2, 3]


def test_an_owner_has_all_slots_that_it_has_with_others():
    subsets = OwnerSubsets()
    subsets.ask((2, (1, 2)), marked=False)
    subsets.ask((1, (0, 2)), marked=False)
    made = subsets.made()
    assert [(subset.part, holders_of(made, subset), subset.marked) for subset in made] == [
        (1, (0,), True),
        (1, (2,), True),
        (2, (2,), False),
        (1, (0, 2), True),
    ]


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


def test_no_text_of_a_user_reaches_the_kernels():
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
