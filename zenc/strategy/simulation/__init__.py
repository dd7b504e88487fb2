"""A training step under a choice for each tensor: its timeline, and its replay event by event."""
