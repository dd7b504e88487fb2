"""Strategies at work in a DDP model: rules, groups of buckets, searches on measured steps, the host beside a GPU."""
