"""Gradients without values: index sets, profiles of sparsity, and generators of both."""
