"""The run time: loaded schemes as collectives over process groups, on CPUs and GPUs."""
