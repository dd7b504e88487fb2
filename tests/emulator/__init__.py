"""CUDA's kernels, driver and NCCL on a machine with g++ only: see docs/internals/emulator.md."""
