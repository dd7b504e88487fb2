"""Averagings: groups of ranks that average in each step of a period, the proof of its result, and their run."""
