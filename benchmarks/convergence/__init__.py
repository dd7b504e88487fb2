"""Convergence of lossy schemes: a character model, trained by ranks that this one process plays, through real plans."""
