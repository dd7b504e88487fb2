"""Verdicts on all-to-alls whose flows are shares of chunks, in the terms of the file."""

import random
from pathlib import Path

import pytest

from tests.referee.conftest import Found
from tests.support import foreign, shares
from zenc.errors import PlanError
from zenc.pipeline.foreign import compile_plan
from zenc.referee.open import check_plan

PLAN = shares.teccl_shares(4)
KEY = "Demand at 2 for chunk 1 from 1 met by epoch 3"


def changed(old: str, new: str, number: int = -1) -> str:
    """Return the plan with another text in the first ``number`` places, or in all."""
    text = foreign.written(PLAN)
    assert old in text
    return text.replace(old, new, number)


def errors(text: str, found: Found) -> list[tuple[str, str]]:
    return [(one.id, one.message) for one in found(text) if one.severity == "error"]


def test_paths_are_proved_and_what_the_list_lacks_is_told(found: Found) -> None:
    assert shares.shares_are_right(PLAN, random.Random(0))
    (told,) = found(foreign.written(PLAN))
    assert (told.id, told.severity) == ("merged-flow", "warning")
    said = "'7-Flows' has 12 flows once that several paths take, and moves 3 chunks less than they do: "
    said += "'Chunk 1 from 1 traveled over 1->2 with volume 0.25 in epoch 0 via switches 0' is of 2 paths"
    assert told.message == said


def test_a_share_that_is_sent_before_it_has_come_is_named_with_its_line(found: Found) -> None:
    """GPU 3 has a quarter of the chunk after epoch 0, and sends it in that epoch."""
    old = "3->2 with volume 0.25 in epoch 1"
    paths = PLAN["8-Chunk paths"] | {KEY: [[*path] for path in PLAN["8-Chunk paths"][KEY]]}
    paths[KEY][2][1] = 0, old.replace("epoch 1", "epoch 0")
    flows = [text.replace(old, paths[KEY][2][1][1]) if "Chunk 1 from 1 " in text else text for text in PLAN["7-Flows"]]
    text = foreign.written({**PLAN, "8-Chunk paths": paths, "7-Flows": flows})
    told = [one for one in found(text) if one.severity == "error"]
    said = f"{KEY}, path 2, hop 1: in epoch 0 gpu 3 sends 0.25 to gpu 2, of which 0.25 has not come before"
    assert [(one.id, one.message) for one in told] == [("unwritten-read", said)]
    assert told[0].span is not None
    assert paths[KEY][2][1][1] in text.split("\n")[told[0].span.line - 1]


def test_a_switch_takes_an_epoch(found: Found) -> None:
    told = errors(changed("via switches 0->9", "via switches 0->9->8"), found)
    said = f"{KEY}, path 3, hop 1: in epoch 3 gpu 4 sends 0.25 to gpu 2, of which 0.25 has not come before"
    assert told[0] == ("unwritten-read", said)
    assert len(told) == 10


def test_what_stays_on_the_way_is_named(found: Found) -> None:
    old = "3->2 with volume 0.25 in epoch 1"
    told = errors(changed(old, old.replace("0.25", "0.2")), found)
    assert told[0] == ("wrong-result", f"{KEY}: 0.95 of it comes, 0.05 stays at gpu 3")


def test_what_comes_too_late_is_named(found: Found) -> None:
    told = errors(changed(KEY, KEY.replace("epoch 3", "epoch 2")), found)
    said = f"{KEY.replace('epoch 3', 'epoch 2')}, path 3, hop 1: it comes in epoch 3"
    assert told == [("wrong-result", said)]


@pytest.mark.parametrize("volume", ["0.249997", "0.2500005"])
def test_rounding_is_let_pass_and_told(volume: str, found: Found) -> None:
    told = found(changed("1->2 with volume 0.25 ", f"1->2 with volume {volume} "))
    assert [one.id for one in told] == ["merged-flow", "rounded-shares"]
    assert told[1].severity == "warning" and "1e-05 of a chunk is let pass" in told[1].message


@pytest.mark.parametrize(("volume", "id"), [("0.24999", "wrong-result"), ("0.25001", "unwritten-read")])
def test_more_than_rounding_is_an_error(volume: str, id: str, found: Found) -> None:
    told = errors(changed("1->2 with volume 0.25 ", f"1->2 with volume {volume} "), found)
    assert {one for one, _ in told} == {id}


def test_volumes_that_floats_cannot_hold_come_whole(found: Found) -> None:
    told = found(changed("volume 0.25", "volume 0.24999999999999998"))
    assert [one.id for one in told] == ["merged-flow", "rounded-shares"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (KEY, KEY.replace("chunk 1", "chunk 0"), "the demands are no all-to-all"),
        (KEY, KEY.replace("from 1", "from 2"), "the demands are no all-to-all"),
        (KEY, "Demand", "a key of the paths is 'Demand', and not 'Demand at GPU for chunk C from GPU met by epoch E'"),
        ("->2 with volume 0.25", "->2 with volume x", "hop 0 is '1->2 with volume x in epoch 0 via switches 0'"),
        ("volume 0.25", "volume 0.25e-999", "and not 'GPU->GPU with volume V in epoch E'"),
        ("1->2 with", "1->7 with", "does not lead from one gpu of a demand to another"),
        ("1->2 with", "1->1 with", "does not lead from one gpu of a demand to another"),
        ("in epoch 1", "in epoch 2", "or does not begin with its epoch"),
        ("Chunk 1 from 1", "Chunk 1 from 9", "more often than paths take it"),
    ],
)
def test_what_is_no_such_plan_is_named(old: str, new: str, said: str, found: Found) -> None:
    told = errors(changed(old, new), found)
    assert [one for one, _ in told] == ["malformed-plan"]
    assert said in told[0][1]


def test_a_hop_that_is_not_in_the_list_is_named(found: Found) -> None:
    flow = PLAN["7-Flows"][0]
    told = errors(foreign.written({**PLAN, "7-Flows": PLAN["7-Flows"][1:]}), found)
    assert told == [("malformed-plan", f"'7-Flows' has {flow!r} not, and a path takes it")]


def test_it_is_reported_and_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    path.write_text(foreign.written(PLAN), encoding="utf-8")
    report = check_plan(path)
    (line,) = report.lines("plan")
    assert line == "plan: the plan is proved (TE-CCL JSON, alltoall of 4 chunks among 4 gpus, out of place; 72 flows)"
    assert report.to_json()["steps"] == 72
    with pytest.raises(PlanError, match="collective alltoall: plans that run are all-reduces"):
        compile_plan(path)
