"""A demonstration of what zenc is for: the same training on loopback and between hosts on a slow network.

    Training x (loopback, shaped) ─▶ benchmarks.lab.training ─▶ Report x 2 ─▶ one table, and in words what it says

``python -m benchmarks.lab.demo --help``
"""
