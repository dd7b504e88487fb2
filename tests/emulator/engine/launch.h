// A launch of a kernel: its blocks, taken by the OS threads that work on it in ascending order, or in one
// drawn from the seed.
#pragma once

#include <atomic>
#include <chrono>

#include "emulator/engine.h"

namespace emulator {

using Seconds = std::chrono::duration<double>;

struct Launch {
    const Kernel& kernel;
    const u64* words;
    dim3 blocks, threads;
    u64 seed;
    std::chrono::time_point<std::chrono::steady_clock, Seconds> deadline;
    std::atomic<u64> next{0};         // block that nobody has taken
    std::atomic<bool> failed{false};  // nobody goes on with it
    char started = 0, ended = 0;      // orders for race detectors: before all threads, after all threads

    u64 total() const { return static_cast<u64>(blocks.x) * blocks.y * blocks.z; }

    // The block that is begun as the one of this number. CUDA promises no order: a block may not wait for one
    // that has only a smaller index.
    u64 block(u64 number) const { return (first + number * stride) % total(); }

    u64 first = 0, stride = 1;  // no divisor of the number of blocks but 1
};

// Runs all blocks, and returns when they are done; false if it failed (see errors.h). Blocks and
// threads run in an order drawn from the seed, or, if it is 0, in ascending order as far as they can.
bool run(const Kernel& kernel, dim3 blocks, dim3 threads, const u64* words, u64 seed);

}  // namespace emulator

extern "C" {
// Called before (0) and after (1) each launch, and with the bytes that a copy reads and writes; or null.
extern void (*emulator_watcher)(const char* name, emulator::u64 what);

// Runs a kernel now; blocks and threads are 3 numbers each. 0 if it failed.
int emulator_run(const emulator::Kernel* kernel, const unsigned* blocks, const unsigned* threads,
                 const emulator::u64* words, emulator::u64 seed);

// Writes the kept error, which is then forgotten, cut to `size` bytes with its final 0; "" for none.
void emulator_take_error(char* out, int size);
}
