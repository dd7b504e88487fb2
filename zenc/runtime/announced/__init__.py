"""Calls whose rows are announced before there are gradients: what ranks tell each other, and what is made of it."""
