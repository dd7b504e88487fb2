"""Steps of training by strategies: the one that ``zenc tune --strategy`` finds, beside ten that were written by hand.

    lab's steps ─dry run─▶ model profile ─tune─▶ strategy ─▶ turns with the ten, and with DDP's fp16 hook ─▶ JSON, page

``python -m benchmarks.lab.steps.suite``; the tables are in docs/guides/strategies.md.
"""
