"""Strategies for a training step: the compression, device, scheme and group of each tensor."""
