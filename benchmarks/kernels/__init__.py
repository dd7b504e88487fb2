"""The CPU kernels one by one, and a whole call without its wire, beside memcpy and PyTorch: see benchmarks/micro.py."""
