"""Shared foundations: texts, files, numbers and settings of users, and words about them."""
