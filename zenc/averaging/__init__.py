"""Averagings: groups of ranks that average in each step of a period, and the proof of what a period makes."""
