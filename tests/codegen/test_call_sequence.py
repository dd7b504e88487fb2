"""Call sequences as C++ and as data: readable, made of numbers only, and equal."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from jinja2 import meta

from tests.rank_ir.test_holders import VARIANTS, programs
from tests.support.plans import plan_of
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.codegen.call_program import CODE, DATA, OwnerSubsets, SequenceInputs, Subset, call_program, render_sequence
from zenc.codegen.render import environment
from zenc.rank_ir import ir
from zenc.rank_ir.lower import lower, lower_all
from zenc.wire.constants import FULL_SPREAD, WHOLE_PART


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
