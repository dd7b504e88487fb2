"""Zen's evaluation, computed again. Here are the numbers that the paper prints, each with its place; none is ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
SPARSITY: dict[str, float] = {name: point["value"] for name, point in PUBLISHED["sparsity"].items()}


def where(name: str) -> str:
    """Return the place of a number about sparsity."""
    return str(PUBLISHED["sparsity"][name]["where"])
