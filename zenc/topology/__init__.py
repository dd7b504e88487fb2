"""Topologies: clusters as graphs of ranks, switches and links; built, read from files, and routed."""
