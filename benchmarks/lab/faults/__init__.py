"""The lab's faults: collectives over networks that lose, double and reorder packets, and with hosts that fail."""
