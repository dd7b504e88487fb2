"""The CUDA target: kernels for GPUs, and call sequences in C++ that drive them and NCCL."""
