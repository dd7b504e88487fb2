"""The GPU's backend: a call sequence in C++ over CUDA's driver and NCCL."""
