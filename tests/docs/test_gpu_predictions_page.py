"""The tables of the page about predictions for GPUs are those that its command writes."""

from __future__ import annotations

from benchmarks.gpu_predictions import PART, format_costs, tables
from zenc.wire.formats import GPU_COSTS, FormatCosts


def test_the_tables_are_those_of_the_command() -> None:
    page = PART.page.read_text("utf-8")
    assert page == PART.written(page, tables())


def test_formats_cost_what_was_measured() -> None:
    assert FormatCosts(**{name: round(cost) for name, cost in format_costs().items()}) == GPU_COSTS
