"""Training on the lab's network: the same steps of one model, its gradients summed in several ways that take turns.

    Training ─▶ launch ─▶ one worker a rank, a Lane a way ─▶ samples, losses ─▶ Report ─▶ JSON, table

``python -m benchmarks.lab.training --help``; the method is in benchmarks/reports/benchmarks.md.
"""
