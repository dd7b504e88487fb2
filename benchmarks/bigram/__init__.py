"""A hashed table of bigrams, as language models have it: ways to train it on several hosts, compared in turns.

    Bigrams ─▶ launch (benchmarks.lab) ─▶ one worker a rank, a Lane a way ─▶ samples, losses ─▶ Point ─▶ JSON, page

``python -m benchmarks.bigram --help``.
"""
