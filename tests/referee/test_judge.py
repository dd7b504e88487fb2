"""Verdicts on plans of other synthesizers: right ones, each kind of mistake in the terms of the file, damaged ones."""

from __future__ import annotations

import random
import re

import pytest

from benchmarks.judge_plans import compared
from tests.referee.conftest import Found
from tests.support import foreign
from tests.support.foreign import XmlPlan, step
from zenc.errors import Diagnostic


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


def test_a_ring_of_32_ranks_is_proved(found: Found) -> None:
    assert found(foreign.ring_allreduce(32)) == ()
