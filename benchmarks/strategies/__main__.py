"""Strategies of published systems, computed again: the numbers of benchmarks/reports/strategies.md.

    python -m benchmarks.strategies            prints what the page says
    python -m benchmarks.strategies --write    writes the marked part of the page, and its JSON, anew
    python -m benchmarks.strategies --page     the same without computing: from the JSON that there is

No GPU and no network are used. Only the choices themselves are timed, and some real calls counted; all
else is computed, in a minute.
"""

from benchmarks.pages import DOCS, ROOT, Part, compute_or_page
from benchmarks.strategies import Results, espresso, groups, oscar, others, peers
from benchmarks.strategies.page import BEGIN, part
from benchmarks.strategies.traces import published

PART = Part(ROOT / "benchmarks" / "reports" / "strategies.md", BEGIN, results=DOCS / "strategies.json")


def results() -> Results:
    measured = oscar.measured()
    return {
        "published": published(), "espresso": espresso.rows(), "scaling": peers.scaling(), "peers": peers.rows(),
        "times": espresso.times(), "crippled": espresso.crippled(), "never worse": espresso.never_worse(),
        "groups": groups.rows(), "mergecomp": groups.compared(), "topka2a": others.topka2a(),
        "conditions": others.conditions(), "byteps": others.byteps(),
        "oscar": {**measured, "rows": oscar.simulated(measured)},
    }  # fmt: skip


if __name__ == "__main__":
    compute_or_page(__doc__, PART, results, part)
