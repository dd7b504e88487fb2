"""Calls whose rows are announced before there are gradients: the ranks' announcements, and the calls based on them."""
