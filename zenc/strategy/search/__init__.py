"""Searches for a strategy: a scheme and a group for each tensor of a step, by Espresso's algorithms."""
