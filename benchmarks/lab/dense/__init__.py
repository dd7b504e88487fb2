"""Dense gradients on the lab's network: a backward pass of DDP, averaged in several ways that take turns."""
