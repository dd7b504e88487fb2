"""Tests on a GPU, and their helpers: see "On a GPU" in docs/reference/cuda.md."""
