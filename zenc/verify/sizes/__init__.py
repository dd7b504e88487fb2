"""The numbers of ranks that a scheme is right for."""
