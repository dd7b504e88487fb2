"""The tables of the page about GPUs are those of the files that the benchmarks have written."""

from __future__ import annotations

from benchmarks.gpu_page import BEGIN, END, PAGE, tables
from benchmarks.markdown import between


def test_the_tables_are_those_of_the_measurements() -> None:
    page = PAGE.read_text("utf-8")
    assert page == between(page, tables(), BEGIN, END)
