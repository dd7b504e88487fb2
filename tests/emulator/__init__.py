"""CUDA's kernels, driver and NCCL on a machine that has g++ only: see docs/internals/emulator.md."""
