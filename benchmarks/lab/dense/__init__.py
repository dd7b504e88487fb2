"""Dense gradients on the lab's network: a backward pass of DDP, averaged in several ways that take turns.

    Layer ─▶ launch ─▶ one worker a rank, a Backward a way ─▶ samples ─▶ Report ─▶ JSON, table

``python -m benchmarks.lab.dense --help``; the method and what came of it is in docs/guides/compression.md.
"""
