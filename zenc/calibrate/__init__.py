"""Calibration: what the network and the kernels of a process group take, measured."""
