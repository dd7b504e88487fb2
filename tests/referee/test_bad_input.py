"""Files that are no plans, or damaged or made to cost much: each gets a diagnostic at its place, and quickly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.referee.conftest import Found
from tests.support import foreign
from tests.support.foreign import XmlPlan, step
from zenc.common.untrusted import parse_json
from zenc.errors import PlanError
from zenc.referee.open import check_plan, kind_of

RING = foreign.ring_allreduce(3)
BOMB = '<!DOCTYPE algo [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n' + RING


def changed(old: str, new: str) -> str:
    assert old in RING
    return RING.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "id", "message", "line"),
    [
        (changed('type="rrs"', 'type="x"'), "malformed-plan", "step 1 is of type 'x'; one of s, r,", 5),
        (changed('coll="allreduce"', 'coll="gather"'), "unsupported-plan", "collective 'gather' is not judged", 1),
        (changed('ngpus="3"', 'ngpus="4"'), "malformed-plan", "gpu 3 is missing", 1),
        (changed('ngpus="3"', 'ngpus="99999999"'), "malformed-plan", "which is not 1 to 1,024", 1),
        (changed('nchunksperloop="3"', 'nchunksperloop="400000"'), "plan-too-large", "its buffers have", 1),
        (changed('cnt="1"', 'cnt="99999999999"'), "malformed-plan", "'cnt' of <step> is 99999999999", 4),
        (changed(' cnt="1"', ""), "malformed-plan", "'cnt' of <step> is missing", 4),
        (changed('srcoff="0"', 'srcoff="zero"'), "malformed-plan", "'srcoff' of <step> is 'zero', and no", 4),
        (changed('depid="-1" deps="-1"', 'depid="7" deps="0"'), "malformed-plan", "threadblock 7, which gpu 0", 4),
        (changed('send="1"', 'send="-1"'), "malformed-plan", "has no peer", 4),
        (changed('s="1" type', 's="2" type'), "malformed-plan", "step 2 of threadblock 0 of gpu 0 stands", 5),
        (RING[: len(RING) // 2], "malformed-plan", "this is no XML", None),
        (BOMB, "unsafe-xml", "this XML declares a document type or an entity, which no plan needs", 1),
        ("<algo>" + "<gpu>" * 200, "malformed-plan", "nests deeper than 100 elements", 1),
        ("{}", "unknown-plan", "holds no plan that zenc knows", None),
        ("", "unknown-plan", "holds no plan that zenc knows", None),
        ('{"1-Epoch_Duration": 1', "malformed-plan", "it is no JSON: line 1", None),
        ('{"1-Epoch_Duration": 1}', "malformed-plan", "'7-Flows' is missing", None),
        ('{"1-Epoch_Duration": 1, "7-Flows": ["Chunk 1 with volume 0.5"]}', "unsupported-plan", "an all-to-all", None),
        ('{"collective": "allreduce", "gpus": [' + "[" * 100_000, "malformed-plan", "it nests too deep", None),
        ('{"collective": "allreduce", "gpus": {}}', "malformed-plan", "'gpus' is '{}', and not a list", None),
        ('{"collective": "allreduce", "gpus": [{"id": 0}]}', "malformed-plan", "'input_chunks' of gpu 0 is", None),
    ],
)  # fmt: skip
def test_it_is_named(text: str, id: str, message: str, line: int | None, found: Found) -> None:
    first = found(text)[0]
    assert first.id == id
    assert message in first.message
    assert line is None or (first.span is not None and first.span.line == line)


def test_an_unknown_operation_of_mscclpp_is_named(found: Found) -> None:
    text = foreign.written(foreign.mscclpp_pair()).replace('"rres"', '"warp"', 1)
    assert "gpu 0, threadblock 0, op 2 (warp) is no operation that is judged" in found(text)[0].message


@pytest.mark.parametrize("key", ["channel_ids", "remote_buffer_ids", "connected_to", "rank", "index", "size", "id"])
def test_numbers_of_mscclpp_that_lead_nowhere_are_named(key: str, found: Found) -> None:
    text = foreign.written(foreign.mscclpp_pair())
    for bad in ("77", "-1", '"x"', "null"):
        damaged = re.sub(rf'("{key}": \[?\s*)\d', rf"\g<1>{bad}", text, count=1)
        assert found(damaged), (key, bad)
        assert found(damaged)[0].id in ("malformed-plan", "buffer-range")
    parse_json(text.encode())


def test_a_file_of_100_mb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.xml"
    with path.open("wb") as file:
        file.write(b"<algo>")
        file.truncate(100_000_000)
    with pytest.raises(PlanError, match=r"error\[plan-too-large\]"):
        check_plan(path)


def test_steps_that_touch_very_many_chunks_are_refused(found: Found) -> None:
    plan = XmlPlan("allreduce", 2, 4000)
    block = plan.block(0)
    for _ in range(200):
        step(block, "cpy", ("i", 0), ("i", 0), 4000)
    assert found(plan.text())[0].id == "plan-too-large"


def test_other_files_are_no_plans(tmp_path: Path) -> None:
    assert kind_of(tmp_path) is None
    assert kind_of(tmp_path / "missing") is None
    for text in ("scheme x {}", '{"zenc_plan": 3}', '<system version="1">'):
        (tmp_path / "other").write_text(text)
        assert kind_of(tmp_path / "other") is None
