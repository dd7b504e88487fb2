"""Strategies of published systems, computed again: the numbers of benchmarks/reports/strategies.md.

    python -m benchmarks.strategies            prints what the page says
    python -m benchmarks.strategies --write    writes the marked part of the page, and its JSON, anew
    python -m benchmarks.strategies --page     the same without computing: from the JSON that there is

No GPU and no network are used. Only the choices themselves are timed, and some real calls counted; all
else is computed, in a minute.
"""

from __future__ import annotations

from benchmarks.pages import DOCS, ROOT, json_of, new_parser, save_json
from benchmarks.strategies import Results, espresso, groups, oscar, others, peers
from benchmarks.strategies.page import part, with_results
from benchmarks.strategies.traces import published

PAGE, JSON = ROOT / "benchmarks" / "reports" / "strategies.md", DOCS / "strategies.json"


def results() -> Results:
    """Return all results."""
    measured = oscar.measured()
    return {
        "published": published(),
        "espresso": espresso.rows(),
        "scaling": peers.scaling(),
        "peers": peers.rows(),
        "times": espresso.times(),
        "crippled": espresso.crippled(),
        "never worse": espresso.never_worse(),
        "groups": groups.rows(),
        "mergecomp": groups.compared(),
        "topka2a": others.topka2a(),
        "conditions": others.conditions(),
        "byteps": others.byteps(),
        "oscar": {**measured, "rows": oscar.simulated(measured)},
    }


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--write", action="store_true", help="write the page and its JSON")
    parser.add_argument("--page", action="store_true", help="write the page from the JSON")
    options = parser.parse_args()
    found = json_of(JSON) if options.page else results()
    if options.write or options.page:
        save_json(JSON, found)
        PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    else:
        print(part(found))


if __name__ == "__main__":
    main()
