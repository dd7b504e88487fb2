"""The choice of a scheme at work, and the samples of gradients that it and profiles are made of."""
