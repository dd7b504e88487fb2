"""Lossy calls: what is contributed of a gradient, what of it is kept for the next one, and how values travel."""
