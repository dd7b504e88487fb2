"""Calls that lose something: their selections and codes, and their work while others' bytes are on the way."""
