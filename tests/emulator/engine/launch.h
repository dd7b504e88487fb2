// A launch of a kernel: its blocks, taken in ascending order by the OS threads that work on it.
#pragma once

#include <atomic>
#include <chrono>

#include "emulator/engine.h"

namespace emulator {

struct Launch {
    const Kernel& kernel;
    const u64* words;
    dim3 blocks, threads;
    std::chrono::steady_clock::time_point deadline;
    std::atomic<u64> next{0};         // block that nobody has taken
    std::atomic<bool> failed{false};  // nobody goes on with it
    char started = 0, ended = 0;      // orders for race detectors: before all threads, after all threads

    u64 total() const { return static_cast<u64>(blocks.x) * blocks.y * blocks.z; }
};

// Runs all blocks, and returns when they are done; false if it failed (see errors.h).
bool run(const Kernel& kernel, dim3 blocks, dim3 threads, const u64* words);

}  // namespace emulator
