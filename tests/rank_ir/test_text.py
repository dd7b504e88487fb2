"""Rank programs in words and as JSON: every statement, and bytes where they are known."""

from __future__ import annotations

import json

import pytest

from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.api import rank_programs
from zenc.errors import ZencError
from zenc.plan.requirements import allowed
from zenc.rank_ir.ir import used_by
from zenc.rank_ir.lower import lower
from zenc.rank_ir.text import ShownProgram


def shown(name: str, size: int, rank: int = 1, units: int = 4000) -> ShownProgram:
    plan = plan_of_shipped(name)
    parts = plan.parts(size)
    return ShownProgram(name, lower(plan, size, rank), (units // parts,) * parts, 64, 4)


@pytest.mark.one_in(1)
@pytest.mark.parametrize("name", ["balanced", "holders", "dense_ring"])
def test_programs_are_shown_as_they_were(assert_golden, name):
    assert_golden(f"{name}.program.txt", shown(name, 4).text() + "\n")


@pytest.mark.parametrize("name", SHIPPED)
def test_all_statements_are_shown(name):
    size = allowed(plan_of_shipped(name), (3, 4, 2, 8))[0]
    of = shown(name, size)
    lines, data = of.text().splitlines(), json.loads(json.dumps(of.to_json()))
    statements = list(of.program.statements)
    assert sum(line.startswith("  ") for line in lines) == len(statements)
    assert all(any(line.startswith(f"{phase.name}: ") for line in lines) for phase in of.program.phases)
    found = [data["pack"], *(each for phase in data["phases"] for each in phase["statements"]), data["expand"]]
    assert [each["operation"] for each in found] == [type(each).__name__.lower() for each in statements]
    assert [each["frees"] for each in found] == [list(each.frees) for each in statements]
    for each, statement in zip(found, statements, strict=True):
        sent = [segment for message in each.get("sends", ()) for segment in message["segments"]]
        assert (sent or each.get("of", [])) == list(used_by(statement))


def test_bytes_are_known_where_segments_are_full():
    """A message has 48 bytes of header, 16 for the segment, and 1000 rows of 256 bytes."""
    sends = [
        [message["bytes"] for each in phase["statements"] for message in each.get("sends", ())]
        for name in ("dense_ring", "balanced")
        for phase in shown(name, 4).to_json()["phases"]
    ]
    assert sends == [[256_064] * 3, [256_064] * 3, [None] * 3, [None] * 3]


def test_bytes_of_codes_are_known_and_losses_shown():
    """1000 rows of 64 values take a bit each, and 4 bytes for each block of 2048."""
    of = shown("one_bit", 4)
    sends = {message["bytes"] for phase in of.to_json()["phases"] for each in phase["statements"]
             for message in each.get("sends", ())}  # fmt: skip
    assert sends == {48 + 16 + 8000 + 128}
    assert of.text().count("as sign(2048)    # keeps what is lost") == 4
    short = rank_programs("sketch_sgd", 4, 2, units=1000)["sketch_sgd"]
    assert sum(short.slots) * short.width == 3_200 == 0.05 * 64_000 and "  select     sketch(" in short.text()


def test_the_api_shows_every_candidate_of_a_choice():
    assert list(rank_programs("balanced", 4, 2)) == ["balanced"]
    several = rank_programs("auto", 4, 2)
    assert len(several) > 1 and all(each.program.rank == 2 for each in several.values())
    with pytest.raises(ZencError, match="there is no rank 4 among 4"):
        rank_programs("balanced", 4, 4)
