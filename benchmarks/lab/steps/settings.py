"""The ways whose steps are compared: strategies that were written by hand, and DDP's own in 16 bits."""

from __future__ import annotations

FOLDER = "benchmarks/lab/strategies"
ALLOWED = f"{FOLDER}/allowed.zen"
"""The file of the schemes that strategies may use, those by hand and the one that is searched."""
NAMES = (
    *("nothing", "half", "levels", "topk", "greatest", "large", "largest", "ends"),
    *("one_group", "one_group_half"),
)
HAND_WRITTEN = tuple(f"{FOLDER}/{name}.zen" for name in NAMES)
BY_DDP = "torch-fp16"
"""DDP with its hook that casts to 16 bits."""
