// One text for NVRTC, nvcc and the emulator: how a kernel and its shared memory are declared.
//
// An emulator compiles this text with a C++ compiler: it is included before everything else, defines
// ZENC_EMULATOR and the names of CUDA, and its own ZENC_KERNEL, ZENC_TABLES and ZENC_SHARED.
#pragma once

#include "zenc/segment.h"

#ifndef ZENC_EMULATOR

// ZENC_KERNEL(name, (parameters)) { body }; every parameter is a pointer, an i64, or a structure of words.
// Two blocks a processor are enough: for a third one the compiler would rather spill registers than take a
// few more.
#define ZENC_KERNEL(name, parameters) \
    extern "C" __global__ void __launch_bounds__(zenc::THREADS, 2) name parameters

// The last parameter of a kernel that takes tables; it stays where it is, and threads have no copies.
#define ZENC_TABLES const __grid_constant__ zenc::Tables tables

// Uninitialised shared memory of the block: n values of type T.
#define ZENC_SHARED(T, name, n) __shared__ T name[n]

#endif

#define ZENC_DEVICE __device__ __forceinline__

namespace zenc {

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

// What no kernel writes and this one reads once: not kept in the caches, nor kept coherent.
template <class T>
ZENC_DEVICE T load_once(const T* from) {
    return *from;
}

#ifndef ZENC_EMULATOR

template <>
ZENC_DEVICE uint4 load_once(const uint4* from) {
    uint4 found;
    asm("ld.global.cs.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
        : "l"(from));
    return found;
}

template <>
ZENC_DEVICE u64 load_once(const u64* from) {
    u64 found;
    asm("ld.global.cs.nc.u64 %0, [%1];" : "=l"(found) : "l"(from));
    return found;
}

template <>
ZENC_DEVICE u32 load_once(const u32* from) {
    u32 found;
    asm("ld.global.cs.nc.u32 %0, [%1];" : "=r"(found) : "l"(from));
    return found;
}

#endif

}  // namespace zenc
