"""Faults at every statement of the calls of GPUs, played in the emulator."""
