"""Kernels of ranks as numbers: what they take, and what is estimated of those that nobody measured."""
