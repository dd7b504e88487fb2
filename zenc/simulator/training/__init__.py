"""Predictions for a training step: zenc beside DDP's own all-reduce, for all gradients of a model."""
