"""Sampling: which units of a sample ranks hold, for profiles and for the choice of a scheme."""
