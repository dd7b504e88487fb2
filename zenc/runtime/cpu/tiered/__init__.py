"""Calls of tiers of which the outermost has owners of its own."""
