"""A hashed table of bigrams, as language models have it: ways to train it on several hosts, compared in turns."""
