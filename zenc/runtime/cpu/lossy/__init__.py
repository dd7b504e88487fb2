"""Calls that lose something: what they select and encode, and their work while others' bytes are on the way."""
