"""Rows of the page "works with", each of which has a job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.torch.works_with_jobs import TRIED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "works_with.md"


def test_the_page_has_the_rows_that_are_tried() -> None:
    rows = re.findall(r"^\| `?([^|`]+?)`? \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert [row for row in rows if row != "with" and not row.startswith("---")] == list(TRIED)


@pytest.mark.parametrize("name", TRIED)
def test_training_is_that_of_ddp_alone(two, name: str) -> None:
    assert two.run("tests.torch.works_with_jobs:tried", name=name) == [[], []]
