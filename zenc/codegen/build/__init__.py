"""Builds: compilers, the cache of compiled units, and one build for all processes of a node."""
