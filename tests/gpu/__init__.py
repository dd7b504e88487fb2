"""Tests on a GPU, and what they share: see "On a GPU" in docs/reference/cuda.md."""
