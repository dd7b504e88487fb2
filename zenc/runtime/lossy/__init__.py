"""Lossy calls: the contributed part of a gradient, the residual for the next call, and the codes of values."""
