"""Collectives on another group, in the same processes: what the ranks have kept goes on."""
