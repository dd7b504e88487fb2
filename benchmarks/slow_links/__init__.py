"""Training on slow links, in many ways: seconds and bytes to an equal loss, and losses after equal steps."""
