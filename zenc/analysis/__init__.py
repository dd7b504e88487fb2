"""Static answers about a plan: bytes, memory, link loads, placement, closed forms."""
