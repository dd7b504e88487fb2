"""The simulator: seconds of calls and training steps, from moves, sparsity profiles, links and kernels."""
