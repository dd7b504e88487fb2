"""``zenc check`` and ``zenc compile`` on plans of other synthesizers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Zenc
from tests.support import foreign


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
