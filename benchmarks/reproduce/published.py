"""Numbers that the paper prints, each with the place where it stands. No result of ours is among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SPARSITY: dict[str, float] = {name: point["value"] for name, point in PUBLISHED["sparsity"].items()}


def where(name: str) -> str:
    """Return the place of a number about sparsity."""
    return str(PUBLISHED["sparsity"][name]["where"])
