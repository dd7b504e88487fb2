"""Zen's evaluation, computed again. Here are the numbers that the paper prints, each with its place; none is ours."""

from pathlib import Path
from typing import Any

from benchmarks.pages import json_of

PUBLISHED: dict[str, Any] = json_of(Path(__file__).with_name("published.json"))
SPARSITY: dict[str, float] = {name: point["value"] for name, point in PUBLISHED["sparsity"].items()}


def where(name: str) -> str:
    """Return the place of a number about sparsity."""
    return str(PUBLISHED["sparsity"][name]["where"])
