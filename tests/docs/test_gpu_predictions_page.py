"""The tables of the page about predictions for GPUs are those that its command writes."""

from __future__ import annotations

from benchmarks.gpu_predictions import BEGIN, END, PAGE, tables
from benchmarks.markdown import between


def test_the_tables_are_those_of_the_command() -> None:
    page = PAGE.read_text("utf-8")
    assert page == between(page, tables(), BEGIN, END)
