"""Texts of the files in a release's folder."""

from __future__ import annotations

SCHEME = """# A schedule by hand, which imports nothing.
scheme by_hand(seed = 7) {
    communication: schedule {
        push { step { for d in 1 .. size - 1 { send part (rank + d) mod size to (rank + d) mod size } } }
        pull { step { for d in 1 .. size - 1 { send part rank to (rank + d) mod size } } }
    }
    aggregation: incremental
    partition: parallelism
    balance: balanced by permutation(seed)
}
"""
STRATEGY = f"""{SCHEME}
strategy mixed {{
    tensors above 1 MB: by_hand(seed = 8)
    others: by_hand
}}
"""
AVERAGING = "averaging pair { alternate [everyone] sums: dense_ring }\n"
_SPARSE = """
    communication: point_to_point
    aggregation: incremental
    partition: parallelism
    balance: imbalanced"""
CHOICE = f"""scheme one {{{_SPARSE}
}}
scheme other {{{_SPARSE}
    pull: bitmap
}}
scheme pick {{
    choose(trials = 1) from [one, other]
}}
"""
LOSSY = f"""scheme top {{{_SPARSE}
    push: coo
    pull: dense
    select: top_of_parts(0.1)
    feedback: residual
}}
"""
TEXTS = {
    "scheme.zen": SCHEME,
    "strategy.zen": STRATEGY,
    "averaging.zen": AVERAGING,
    "choice.zen": CHOICE,
    "lossy.zen": LOSSY,
}
"""File name -> text."""
