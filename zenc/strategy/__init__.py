"""Strategies for a training step: which tensor is compressed, how, where, with whom, and together with what."""
