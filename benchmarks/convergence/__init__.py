"""Convergence of lossy schemes: a character model, trained by ranks that this one process plays, through real plans.

    Run ─▶ Trainer: n gradients a step ─▶ all_reduce of n collectives ─▶ update ─▶ Curve ─▶ JSON ─▶ page, figures

``python -m benchmarks.convergence --help``; the method and what came of it is in benchmarks/reports/convergence.md.
"""
