"""Averagings: groups of ranks that average in each step of a period, and the proof of a period's result."""
