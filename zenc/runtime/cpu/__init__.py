"""The CPU's backend: kernels in C++, messages over gloo."""
