"""Strategies, averagings and plans of others on the command line: proved, compiled, explained and drawn."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Zenc
from tests.support import foreign
from zenc.kinds import open as open_text
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile

STEP = """scheme across(gpus = 2) { tier node(gpus): dense_ring   tier cluster: dense_ring }
strategy halves {
    groups: cuts(2)
    tensors "h.*.weight": across(2)
    tensors "nothing.*": one_bit
    others: choose from [dense_ring, one_bit]
}
"""


@pytest.fixture
def step(tmp_path: Path) -> str:
    (tmp_path / "step.zen").write_text(STEP)
    shapes = {"h.1.weight": (1000, 1000), "h.0.weight": (1000, 1000), "h.0.bias": (1000,), "wte.weight": (500, 1000)}
    parameters = tuple(
        ParameterProfile(name, shape, "f32", "dense", 1.0, 0.001 * at)
        for at, (name, shape) in enumerate(shapes.items())
    )
    ModelProfile(2, "gloo", "cpu", 9, 0.01, 0.004, 0.002, parameters, {}, 0.003, 0.004).save(tmp_path / "model.json")
    return "step.zen"


def test_check_proves_each_scheme_once(zenc: Zenc, step: str) -> None:
    done = zenc("check", step, "--model", "model.json")
    assert done.stdout.splitlines() == [
        "step.zen: strategy halves has 3 rules with 3 schemes: across(gpus = 2), one_bit, dense_ring",
        "step.zen: across(gpus = 2) is proved for 2, 4, 6, 8, 10, 12, 14, 16 ranks (push 8 steps, pull 8 steps)",
        "step.zen: one_bit is proved for 1 to 16 ranks (push 1 step, pull 1 step)",
        "step.zen: dense_ring is proved for 1 to 16 ranks (push 15 steps, pull 15 steps)",
    ]
    ids = ("no-such-tensor", "coarse-buckets", "differing-candidates")
    assert [each for each in ids if done.stderr.count(f"warning[{each}]") == 1] == list(ids)
    found = json.loads(zenc("check", step, "--json", "--ranks", "4").stdout)
    assert [rule["rule"] for rule in found["rules"]] == ['tensors "h.*.weight"', 'tensors "nothing.*"', "others"]
    assert found["schemes"]["across(gpus = 2)"]["sizes"] == [4]
    assert "across is proved" in zenc("check", step, "--scheme", "across").stdout, "a scheme of the file, by its name"
    assert "--model is for strategies" in zenc("check", "balanced", "--model", "model.json").stderr


def test_explain_is_a_table(zenc: Zenc, step: str, tmp_path: Path) -> None:
    shown = zenc("explain", step, "--ranks", "4", "--model", "model.json").stdout
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert 'tensors "h.*.weight" 2 8 MB (80 %) across(gpus = 2) - 6 -' in rows
    found = open_text(tmp_path / step, ranks=4).explain(model=tmp_path / "model.json").to_json()
    assert found["groups"] == "cuts(2)"
    assert [rule["tensors"] for rule in found["rules"]] == [
        ["h.1.weight", "h.0.weight"],
        [],
        ["h.0.bias", "wte.weight"],
    ]
    dense, one_bit = found["rules"][2]["schemes"]
    assert dense["loss"] == "" and dense["bytes_a_value"] == pytest.approx(6.0, rel=1e-3)
    assert "feedback residual" in one_bit["loss"] and one_bit["bytes_a_value"] < 6 / 30


def test_compile_writes_each_scheme_to_a_directory(zenc: Zenc, step: str, tmp_path: Path) -> None:
    done = zenc("compile", step, "-o", "out", "--target", "plan")
    assert done.returncode == 0, done.stderr
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["across_gpus_2", "halves_others", "one_bit", "strategy.json"]
    rules = [line for line in done.stdout.splitlines() if line.startswith("  for ")]
    assert rules == ['  for tensors "h.*.weight"', '  for tensors "nothing.*"', "  for others"]
    assert "it chooses from dense_ring, one_bit" in done.stdout


def test_draw_shows_rules_tensors_and_groups(zenc: Zenc, step: str, tmp_path: Path) -> None:
    done = zenc("draw", step, "--model", "model.json", "-o", "step.svg", "--json")
    found = json.loads(done.stdout)
    assert [tensor["rule"] for tensor in found["tensors"]] == [0, 0, 2, 2] and found["ends"] == [2]
    picture = ElementTree.parse(tmp_path / "step.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    boxes = [group.find(f"{space}rect") for group in picture.iter(f"{space}g")]
    widths = [float(box.get("width", "0")) for box in boxes if box is not None]
    assert len(boxes) == 3 + 4, "a sign for each rule, and the tensors"
    assert widths[3] == widths[4] == pytest.approx(2 * widths[6], rel=0.01), "as wide as they have bytes"
    assert len(list(picture.iter(f"{space}line"))) == 3, "two groups"
    assert "group 1: 2 tensors, 8 MB" in {text.text for text in picture.iter(f"{space}text")}


def test_groups_that_are_searched_are_drawn_as_buckets(zenc: Zenc, step: str, tmp_path: Path) -> None:
    (tmp_path / step).write_text(STEP.replace("cuts(2)", "search(2)"))
    done = zenc("draw", step, "--model", "model.json", "-o", "step.svg")
    assert "3 rules and 4 tensors in 2 buckets" in done.stdout
    svg = (tmp_path / "step.svg").read_text()
    assert "groups: search(2)" in svg and "bucket 1: 1 tensor" in svg and "group 1" not in svg


def test_a_right_plan_is_proved(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(foreign.ring_allreduce(3))
    result = zenc("check", "ring.xml")
    said = "MSCCL XML, allreduce of 3 chunks among 3 gpus, in place; 15 steps in 3 thread blocks"
    assert (result.returncode, result.stdout) == (0, f"ring.xml: own_allreduce is proved ({said})\n")
    told = json.loads(zenc("check", "ring.xml", "--json").stdout)
    assert (told["ok"], told["format"], told["collective"], told["ranks"]) == (True, "MSCCL XML", "allreduce", 3)


def test_a_wrong_plan_has_status_1(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(foreign.ring_allreduce(3).replace('type="rrcs"', 'type="rcs"', 1))
    result = zenc("check", "ring.xml")
    assert result.returncode == 1
    assert "error[wrong-result]: chunk 1 of the output of gpu 0 ends without that of gpu 0" in result.stderr
    assert not json.loads(zenc("check", "ring.xml", "--json").stdout)["ok"]


def test_it_takes_no_options_of_schemes(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(foreign.ring_allreduce(3))
    result = zenc("check", "ring.xml", "--ranks", "4")
    assert result.returncode == 2
    assert "which says its ranks" in result.stderr


def test_it_compiles(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "gather.json").write_text(foreign.written(foreign.teccl_ring(3)))
    result = zenc("compile", "gather.json", "-o", "out", "--target", "plan")
    assert result.returncode == 0
    assert "the push before it is its reverse" in result.stdout
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["size"] == 3
