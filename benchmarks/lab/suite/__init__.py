"""The suite: the points of the lab that benchmarks/reports/benchmarks.md shows, and what makes the page of them.

    Point* ─▶ the lab, once each ─▶ Result* ─▶ docs/benchmarks/NAME.json ─▶ targets, tables, figures ─▶ the page

The page is made of the JSON files alone. ``python -m benchmarks.lab.suite --help``
"""
