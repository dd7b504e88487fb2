// The interface between compiled kernels and the engine that runs them.
#pragma once

#include "emulator/vectors.h"

namespace emulator {

using u64 = unsigned long long;

// The place of a thread of the GPU.
struct Here {
    uint3 thread, block;
    dim3 threads, blocks;  // of the block; of the grid
};

// A kernel, under its own name in its library. Parameters are words of 8 bytes, or structures of them.
struct Kernel {
    const char* name;
    const char* parameters;  // "(i64 n, const u64* in)"
    int count;               // of parameters
    const int* sizes;        // of each, in words
    void (*call)(const u64* words);
};

// Operations of all lanes of a mask together.
enum class WarpOp : int {
    SYNC,
    SHUFFLE,
    UP,
    DOWN,
    XOR,
    BALLOT,
    ANY,
    ALL,
    MATCH,
    SUM,
    MIN,
    MAX,
    AND,
    OR,
    EXCLUSIVE_OR
};

}  // namespace emulator

extern "C" {
extern __thread const emulator::Here* emulator_here __attribute__((tls_model("initial-exec")));

void emulator_barrier(const char* file, int line);

// A lane's part in `op`; returns when all lanes of `mask` have come. `operand` is a lane or a distance.
emulator::u64 emulator_warp(emulator::WarpOp op, unsigned mask, emulator::u64 value, int operand, int width,
                            const char* file, int line);

// The memory of the block's array `tag`: the same for all of its threads, 0xCD at first.
void* emulator_shared(const void* tag, emulator::u64 bytes, const char* file, int line);

// Comes before an access that other threads may make at the same time; here the order of threads may change.
void emulator_contended(const volatile void* address);

void emulator_fence();
void emulator_pause();
[[noreturn]] void emulator_trap(const char* file, int line);

// Ends the launch: an address that a GPU does not read or write `bytes` bytes at.
[[noreturn]] void emulator_misaligned(const char* what, const volatile void* address, emulator::u64 bytes,
                                      const char* file, int line);
}

namespace emulator {

// Race detectors take the start of an OS thread for a write to it: they must not see this read.
__attribute__((no_sanitize("thread"))) inline const Here& here() {
    return *emulator_here;
}

}  // namespace emulator

#define threadIdx (emulator::here().thread)
#define blockIdx (emulator::here().block)
#define blockDim (emulator::here().threads)
#define gridDim (emulator::here().blocks)
