"""Verdicts on plans of other synthesizers: right ones, each kind of mistake in the terms of the file, damaged ones."""

import itertools
import random
import re
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import zenc
from benchmarks.judge_plans import compared
from tests.referee.conftest import Found
from tests.support import foreign
from tests.support.foreign import XmlPlan, step
from tests.support.local import collectives, run_all
from tests.support.refusals import refusals
from zenc.common.untrusted import parse_json
from zenc.errors import Diagnostic, PlanError, SchemeError
from zenc.pipeline.foreign import compile_plan
from zenc.referee.open import check_plan, kind_of


@pytest.mark.parametrize("text", foreign.plans())
def test_right_plans_are_proved(text: str, found: Found) -> None:
    assert found(text) == ()
    assert foreign.is_right(text, random.Random(0))


@pytest.mark.parametrize(
    "text",
    [foreign.written(foreign.teccl_ring(5)), foreign.forestcoll_trees(5), foreign.written(foreign.mscclpp_pair())],
    ids=["te-ccl", "forestcoll", "mscclpp"],
)
def test_other_formats_are_proved(text: str, found: Found) -> None:
    assert found(text) == ()


def test_a_hundred_damaged_plans_get_the_verdict_of_brute_force() -> None:
    found, disagreed = compared(100, seed=7)
    assert disagreed == []
    assert len(found) > 4
    assert found["proved"] < 60


def first(found: tuple[Diagnostic, ...]) -> tuple[str, str]:
    return found[0].id, found[0].message


def test_a_contribution_that_comes_twice_is_named(found: Found) -> None:
    text = foreign.ring_allreduce(3).replace('type="rrcs"', 'type="rcs"', 1)
    told = found(text)
    assert first(told) == ("wrong-result", "chunk 1 of the output of gpu 0 ends without that of gpu 0")
    assert len(told) == 3


def test_blocks_that_wait_for_each_other_are_named(found: Found) -> None:
    plan = XmlPlan("allreduce", 2, 2)
    for gpu in range(2):
        block = plan.block(gpu, 1 - gpu, 1 - gpu)
        step(block, "r", ("i", 0), ("i", 0))
        step(block, "s", ("i", 0), ("i", 0))
    blocked = found(plan.text())[0]
    said = "waits for a message on channel 0 from gpu {} to gpu {}"
    assert blocked.message == f"gpu 0, threadblock 0, step 0 {said.format(1, 0)}, for ever"
    assert blocked.notes == (f"gpu 1, threadblock 0, step 0 {said.format(0, 1)}", "they wait for each other")
    assert blocked.span is not None and blocked.span.line == 4


def test_a_wait_for_a_step_that_does_not_signal_is_named(found: Found) -> None:
    text = foreign.pair_allreduce(4).replace('hasdep="1"', 'hasdep="0"', 1)
    message = (
        "gpu 0, threadblock 1, step 0 waits for step 2 of threadblock 0: it has hasdep=0, and so have all after it"
    )
    assert first(found(text)) == ("deadlock", message)


def test_a_race_between_blocks_is_named(found: Found) -> None:
    text = re.sub(r'depid="0" deps="2"', 'depid="-1" deps="-1"', foreign.pair_allreduce(4), count=1)
    told = found(text)
    assert {one.id for one in told} == {"data-race"}
    assert "gpu 0, threadblock" in told[0].message and told[0].message.endswith("neither waits for the other")


def test_offsets_outside_of_a_buffer_are_named(found: Found) -> None:
    text = foreign.ring_allgather(3, False).replace('srcbuf="i" srcoff="0"', 'srcbuf="i" srcoff="1"', 1)
    message = "gpu 0, threadblock 0, step 0: there is no chunk 2 in the input of gpu 0, which has 2"
    told = found(text)
    assert first(told) == ("buffer-range", message)
    assert told[0].span and told[0].span.line == 4


def test_scratch_that_nobody_wrote_is_named(found: Found) -> None:
    text = foreign.allpairs_allreduce(3).replace('srcbuf="s" srcoff="1"', 'srcbuf="s" srcoff="0"', 1)
    told = found(text)
    assert [one.id for one in told] == ["unwritten-read"]
    assert told[0].message.endswith("it reads chunk 0 of the scratch of gpu 0, in which nothing has been written")


def test_messages_that_do_not_match_are_named(found: Found) -> None:
    plan = XmlPlan("allgather", 2, 4)
    for gpu in range(2):
        block = plan.block(gpu, 1 - gpu, 1 - gpu)
        step(block, "s", ("o", 2 * gpu), ("o", 2 * gpu), 2)
        step(block, "r", ("o", 2 - 2 * gpu), ("o", 2 - 2 * gpu), 1)
    told = found(plan.text())
    message = "gpu 0, threadblock 0, step 1: it receives 1 chunk, and gpu 1, threadblock 0, step 0 sends 2"
    assert {one.id for one in told} == {"unmatched-message"}
    assert message in [one.message for one in told]


def test_two_blocks_on_one_connection_are_named(found: Found) -> None:
    plan = XmlPlan("allreduce", 2, 2)
    for _ in range(2):
        step(plan.block(0, 1), "s", ("i", 0), ("i", 0))
    step(plan.block(1, -1, 0), "r", ("i", 0), ("i", 0))
    message = "threadblocks 0 and 1 of gpu 0 both send on channel 0 from gpu 0 to gpu 1"
    assert first(found(plan.text())) == ("shared-channel", message)


def test_sends_that_need_room_for_many_messages_are_warned_of(found: Found) -> None:
    plan = XmlPlan("allgather", 2, 8)
    for gpu in range(2):
        block = plan.block(gpu, 1 - gpu, 1 - gpu)
        for type, of in (("s", gpu), ("r", 1 - gpu)):
            for at in range(4):
                step(block, type, ("o", 4 * of + at), ("o", 4 * of + at))
    assert [(one.id, one.severity) for one in found(plan.text())] == [("needs-room", "warning")]


def test_a_gpu_of_mscclpp_that_may_not_have_begun_is_named(found: Found) -> None:
    data = foreign.mscclpp_pair()
    for gpu in data["gpus"]:  # type: ignore[attr-defined]
        del gpu["threadblocks"][0]["ops"][:2]
    message = "gpu 0, threadblock 0, op 0 (rres): it reads chunk 0 of the input of gpu 1, and gpu 1 may not have begun"
    assert first(found(foreign.written(data))) == ("data-race", message)


def test_a_flow_that_is_sent_before_it_is_there_is_named(found: Found) -> None:
    data = foreign.teccl_ring(3)
    flows = [text.replace("epoch 0", "epoch 1") for text in data["7-Flows"]]  # type: ignore[attr-defined]
    message = "7-Flows, entry 3: in epoch 1 gpu 2 does not have the chunk, which comes by 7-Flows, entry 0 in epoch 1"
    assert first(found(foreign.written({**data, "7-Flows": flows}))) == ("unwritten-read", message)


def test_a_tree_that_misses_a_gpu_is_named(found: Found) -> None:
    text = foreign.forestcoll_trees(3)
    lines = text.split("\n")
    last = max(at for at, line in enumerate(lines) if "<send" in line)
    message = "chunk 2 of the output of gpu (0, 'GPU', 1) ends without anything written in it"
    assert first(found("\n".join(lines[:last] + lines[last + 1 :]))) == ("wrong-result", message)


def test_lines_are_counted_once_however_much_is_wrong(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', foreign.allpairs_allreduce(8))
    with patch("zenc.topology.importers.xml.accumulate", wraps=itertools.accumulate) as counted:
        assert found(text)[-1].notes == ("and 46 more like this",)
    assert counted.call_count == 1


def test_a_ring_of_32_ranks_is_proved(found: Found) -> None:
    assert found(foreign.ring_allreduce(32)) == ()


TEXTS = {
    "ring": foreign.ring_allreduce(3),
    "all pairs": foreign.allpairs_allreduce(4),
    "te-ccl": foreign.written(foreign.teccl_ring(3)),
}
OTHERS = {
    "doubling": foreign.pair_allreduce(4),
    "gathered in a ring": foreign.ring_allgather(3, False),
    "forestcoll": foreign.forestcoll_trees(4),
    "mscclpp": foreign.written(foreign.mscclpp_pair()),
}


def written(text: str, folder: Path) -> Path:
    path = folder / "plan"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", TEXTS)
def test_it_sums_exactly(name: str, tmp_path: Path) -> None:
    artifact = compile_plan(written(TEXTS[name], tmp_path))
    size = artifact.plan.size
    assert size is not None
    ranks, draw = collectives(artifact, size), torch.Generator().manual_seed(1)
    for density in (1.0, 0.1):
        dense = [torch.randint(-99, 99, (300,), generator=draw).float() for _ in range(size)]
        given = [each * (torch.rand(300, generator=draw) < density) for each in dense]
        wanted = torch.stack(given).sum(0)
        for result in run_all(ranks, [each.clone() for each in given]):
            assert torch.equal(result.to_dense() if result.is_sparse else result, wanted)
        sparse = run_all(ranks, [each.to_sparse() for each in given])
        assert all(torch.equal(result.to_dense(), wanted) for result in sparse)


@pytest.mark.parametrize("name", OTHERS)
def test_it_is_a_plan_of_zenc_that_is_proved(name: str, tmp_path: Path) -> None:
    artifact = compile_plan(written(OTHERS[name], tmp_path), "plan")
    assert artifact.proved_sizes == (artifact.plan.size,)
    assert artifact.plan.doc.startswith("An all-")


def test_partial_sums_that_are_sent_alone_are_told(tmp_path: Path) -> None:
    """GPU 0 relays to GPU 2 what came from GPU 1, and adds nothing to it."""
    plan = XmlPlan("allreduce", 3, 1, 3)
    relay = plan.block(0, 2, 1)
    step(relay, "rcs", ("s", 1), ("s", 1))
    step(plan.block(1, 0), "s", ("i", 0), ("s", 1))
    summing = plan.block(2, -1, 0)
    step(summing, "rrc", ("i", 0), ("i", 0), signals=True)
    own = plan.block(0, 2, 2, 1)
    step(own, "s", ("i", 0), ("i", 0))
    step(own, "r", ("i", 0), ("i", 0))
    back = plan.block(2, 0, 0, 1)
    step(back, "rrcs", ("i", 0), ("i", 0), dep=(0, 0), signals=True)
    step(plan.block(2, 1, -1, 2), "s", ("i", 0), ("i", 0), dep=(1, 0))
    last = plan.block(1, -1, 2, 2)
    step(last, "r", ("i", 0), ("i", 0), dep=(0, 0))
    plan.gpus[1][0][0].set("hasdep", "1")
    message = refusals(PlanError, compile_plan, written(plan.text(), tmp_path))[0].message
    assert "chunk 0: gpu 0 sends the contributions of gpu 1, and not all that it holds" in message


def test_other_collectives_are_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"error\[not-convertible\]"):
        compile_plan(written(foreign.ring_reducescatter(3), tmp_path))


def test_open_returns_a_plan_of_another_program(tmp_path: Path) -> None:
    path = written(TEXTS["ring"], tmp_path)
    found = zenc.open(path)
    assert found.kind == "plan" and repr(found) == f"<zenc.PlanFile {path}>"
    assert found.check().plan.goal.size == 3
    assert found.compile("plan").plan.digest == compile_plan(path, "plan").plan.digest
    for asked in (lambda: zenc.open(path, ranks=3), found.explain, found.draw):
        with pytest.raises(SchemeError, match="a plan of another program, which has no"):
            asked()
    path.write_text(TEXTS["ring"].replace("<step", "<stop", 1), encoding="utf-8")
    with pytest.raises(PlanError):
        zenc.open(path).check()


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
        (changed('srcoff="0"', 'srcoff="--0"'), "malformed-plan", "'srcoff' of <step> is '--0', and no", 4),
        (changed('depid="-1" deps="-1"', 'depid="7" deps="0"'), "malformed-plan", "threadblock 7, which gpu 0", 4),
        (changed('send="1"', 'send="-1"'), "malformed-plan", "has no peer", 4),
        (changed('s="1" type', 's="2" type'), "malformed-plan", "step 2 of threadblock 0 of gpu 0 stands", 5),
        (RING[: len(RING) // 2], "malformed-plan", "this is no XML", None),
        (BOMB, "unsafe-xml", "this XML declares a document type or an entity, which no plan needs", 1),
        ("<algo>" + "<gpu>" * 200, "malformed-plan", "nests deeper than 100 elements", 1),
        (foreign.forestcoll_trees(3).replace("<send", "<other", 1), "unwritten-read", "nothing has been written", None),
        ("", "unknown-plan", "holds no plan that zenc knows", None),
        ('{"1-Epoch_Duration": 1', "malformed-plan", "it is no JSON: line 1", None),
        ('{"1-Epoch_Duration": 1}', "malformed-plan", "'7-Flows' is missing", None),
        ('{"1-Epoch_Duration": 1, "7-Flows": []}', "malformed-plan", "'8-Chunk paths' is missing", None),
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
