"""The suite: the points of the lab that benchmarks/reports/benchmarks.md shows, and what makes the page of them."""
