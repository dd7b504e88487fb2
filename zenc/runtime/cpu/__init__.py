"""The CPU's backend: kernels in C++, and programs played by them."""
