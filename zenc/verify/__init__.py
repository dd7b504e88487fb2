"""The proof: every contribution reaches every rank exactly once, and what each message brings."""
