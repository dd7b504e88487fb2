"""zenc in PyTorch's DistributedDataParallel: the hook, and what surrounds it."""
