"""Calls: what a collective does with a tensor, from its layout as units to the numbers that it counts."""
