// One text for NVRTC and the emulator: how a kernel and its shared memory are declared.
//
// An emulator compiles this text with a C++ compiler: it is included before everything else, defines
// ZENC_EMULATOR and the names of CUDA, and what stands here without one.
#pragma once

#include "zenc/segment.h"

// A module is compiled alone by -DZENC_ONLY -DZENC_ and its name (zenc/codegen/build/gpu_kernels.py);
// otherwise there are all of them.
#ifdef ZENC_ONLY
#define ZENC_HAS(module) ZENC_##module
#else
#define ZENC_HAS(module) 1
#endif

#ifndef ZENC_EMULATOR

// ZENC_KERNEL(name, (parameters)) { body }; every parameter is a pointer, an i64, or a structure of words.
// Two blocks a processor are enough for most: for a third one the compiler would rather spill registers than
// take a few more. A kernel that waits for memory all the time has `blocks` behind its parameters.
#define ZENC_KERNEL(name, parameters, ...)                                                         \
    extern "C" __global__ void __launch_bounds__(zenc::THREADS, zenc::blocks_at_once(__VA_ARGS__)) \
        name parameters

// The last parameter of a kernel that takes tables; it stays where it is, and threads have no copies.
#define ZENC_TABLES const __grid_constant__ zenc::Tables tables

// Uninitialised shared memory of the block: n values of type T.
#define ZENC_SHARED(T, name, n) __shared__ T name[n]

#endif

#define ZENC_DEVICE __device__ __forceinline__

namespace zenc {

// Before sm_90 there is shared memory for fewer: then threads may have more registers.
__device__ constexpr int blocks_at_once(int blocks = 2) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return blocks < 2 ? blocks : 2;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    return blocks < 3 ? blocks : 3;
#else
    return blocks;
#endif
}

constexpr u32 WARP = 32;
constexpr u32 WARPS = THREADS / WARP;
constexpr u32 ALL_LANES = 0xffffffffU;

ZENC_DEVICE u32 lane() {
    return threadIdx.x % WARP;
}

// This thread's number among all that share a segment (blockIdx.y), and how many these are.
ZENC_DEVICE u64 thread_of_row() {
    return static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x;
}

ZENC_DEVICE u64 threads_of_row() {
    return static_cast<u64>(gridDim.x) * THREADS;
}

// A word that other threads may change at the same time.
template <class Word>
ZENC_DEVICE Word load_relaxed(const Word* word) {
    return *static_cast<const volatile Word*>(word);
}

ZENC_DEVICE void store_relaxed(u64* word, u64 value) {
    *static_cast<volatile u64*>(word) = value;
}

// Loads what no kernel writes and this one reads once: past the caches, and without coherence.
template <class T>
ZENC_DEVICE T load_once(const T* from) {
    return *from;
}

#ifndef ZENC_EMULATOR

// Words in global memory, as one of many threads changes them: of an address that may be a shared one the
// compiler makes a loop besides.
ZENC_DEVICE void set_bits(u64* word, u64 bits) {
    asm volatile("red.global.or.b64 [%0], %1;" ::"l"(word), "l"(bits) : "memory");
}

ZENC_DEVICE void keep_bits(u64* word, u64 bits) {
    asm volatile("red.global.and.b64 [%0], %1;" ::"l"(word), "l"(bits) : "memory");
}

template <>
ZENC_DEVICE uint4 load_once(const uint4* from) {
    uint4 found;
    asm("ld.global.cs.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
        : "l"(from));
    return found;
}

// Tells the host, which looks at `bell`, that all is there that threads wrote before a fence of the system.
ZENC_DEVICE void ring(u64* bell, u64 rung) {
    store_relaxed(bell, rung);
}

#endif

// Binary search in ascending numbers: by a warp together, or by one thread that is near to the place already.

ZENC_DEVICE u64 warp_of_row() {
    return thread_of_row() / WARP;
}

ZENC_DEVICE u64 warps_of_row() {
    return threads_of_row() / WARP;
}

// visit(i) for the segments i < n of a launch that this row of blocks serves.
template <class Visit>
ZENC_DEVICE void for_each_segment(u64 n, Visit visit) {
#pragma unroll 1
    for (u64 i = blockIdx.y; i < n; i += gridDim.y) visit(i);
}

ZENC_DEVICE u64 sum_of_warp(u64 value) {
    for (u32 by = WARP / 2; by != 0; by /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, static_cast<int>(by));
    return value;
}

// Returns how many numbers below n are `below`, which is true up to one of them and false from there on. All
// lanes of a warp ask together, and try 32 numbers at a time: four rounds for 2^20. If `below` is true of
// more numbers, the result is never less, whatever it says of single ones.
template <class Below>
ZENC_DEVICE u64 warp_search(u64 n, Below below) {
    u64 first = 0;
    while (n != 0) {  // the answer is one of first .. first + n
        const u64 step = n / (WARP + 1) + 1;
        const u64 tried = step * (lane() + 1) - 1;
        const bool yes = tried < n && below(first + tried);
        const u64 passed = step * static_cast<u64>(__popc(__ballot_sync(ALL_LANES, yes)));
        first += passed;
        n = n - passed < step - 1 ? n - passed : step - 1;
    }
    return first;
}

// The last number below n for which `holds` is true, which is true from `first` up to it: by steps that
// double.
template <class Holds>
ZENC_DEVICE u64 gallop(u64 first, u64 n, Holds holds) {
    u64 step = 1;
    for (; first + step < n && holds(first + step); step *= 2) first += step;
    for (; step != 0; step /= 2)
        if (first + step < n && holds(first + step)) first += step;
    return first;
}

// The bit of `word` that has n set bits below it, for n < population(word).
ZENC_DEVICE u32 select_bit(u64 word, u32 n) {
    u32 half = static_cast<u32>(word);
    u32 bit = 0;
    if (const u32 lower = static_cast<u32>(__popc(half)); n >= lower) {
        n -= lower;
        bit = 32;
        half = static_cast<u32>(word >> 32);
    }
    for (u32 size = 16; size != 0; size /= 2) {
        const u32 lower = static_cast<u32>(__popc(half & ((1U << size) - 1)));
        if (n < lower) continue;
        n -= lower;
        bit += size;
        half >>= size;
    }
    return bit;
}

}  // namespace zenc
