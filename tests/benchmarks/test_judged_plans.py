"""The page about plans of other synthesizers says what the results of the benchmarks say."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks import judge_plans
from tests.support import foreign


def test_the_page_has_the_results() -> None:
    page = judge_plans.PAGE.read_text(encoding="utf-8")
    assert judge_plans.with_results(page) == page


def test_no_mutant_is_disagreed_about() -> None:
    told = judge_plans.MUTANTS.kept()
    assert (told["mutants"], told["disagreements"]) == (10_000, 0)


def test_a_folder_is_judged(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "right.xml").write_text(foreign.ring_allreduce(3))
    (tmp_path / "tool" / "wrong.xml").write_text(foreign.ring_allreduce(3).replace("rrcs", "rcs", 1))
    (tmp_path / "tool" / "other.txt").write_text("no plan")
    rows = list(judge_plans.judged(tmp_path))
    assert [row["verdict"] for row in rows] == ["proved", "wrong"]
    assert "| tool | 2 | 1 | 1 | 0 |" in judge_plans.tables(rows)


def test_a_disagreement_would_be_seen(tmp_path: Path) -> None:
    text, right = judge_plans.mutant(0, random.Random(3))
    assert (judge_plans.verdict(text, tmp_path / "plan") == "proved") == right
