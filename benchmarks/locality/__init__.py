"""A sparsity profile of production tables, made from published statistics of how often rows are looked up."""
