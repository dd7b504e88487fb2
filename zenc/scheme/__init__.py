"""Schemes: a syntax tree to a scheme, every name resolved."""
