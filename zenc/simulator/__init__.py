"""What a scheme costs, before it runs: how sparse gradients are, and what follows from it."""
