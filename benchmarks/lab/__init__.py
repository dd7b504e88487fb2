"""The benchmark lab: all-reduces compared on a slow network that this machine plays.

    Settings ─▶ EmulatedCluster (namespaces, or loopback) ─▶ one worker a rank ─▶ Record* ─▶ Report ─▶ JSON, table, plot

``python -m benchmarks.lab --help``; the method is in benchmarks/reports/benchmarks.md.
"""
