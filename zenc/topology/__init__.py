"""What a cluster is: a graph of ranks, switches and links; how it is built, read and routed."""
