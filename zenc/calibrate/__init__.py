"""Calibration: measured times of the network and the kernels of a process group."""
