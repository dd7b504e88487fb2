"""Publishing: a tensor that changed on one rank, brought to all others as the numbers that changed."""
