// Kernels with one fault each, for tests of what finds it. out has n words, 0 at first.
#include "zenc_cuda/platform.h"

using zenc::ALL_LANES;
using zenc::i64;
using zenc::u32;
using zenc::u64;

ZENC_KERNEL(no_barrier, (u64 * out, i64 n)) {
    ZENC_SHARED(u64, all, zenc::THREADS);
    all[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = all[(threadIdx.x + 1) % n];
}

ZENC_KERNEL(no_syncwarp, (u64 * out, i64)) {
    ZENC_SHARED(u64, all, zenc::THREADS);
    all[threadIdx.x] = threadIdx.x;
    __shfl_sync(ALL_LANES, 1, 0);  // orders nothing
    out[threadIdx.x] = all[threadIdx.x ^ 1];
}

ZENC_KERNEL(check_then_set, (u64 * out, i64 n)) {
    const u64 cell = threadIdx.x % static_cast<u64>(n);
    if (out[cell] == 0) out[cell] = threadIdx.x + 1;
}

ZENC_KERNEL(add_without_atomics, (u64 * out, i64)) {
    if (threadIdx.x == 0) out[0] += 1;
}

ZENC_KERNEL(flag_without_fence, (u64 * out, i64)) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        out[0] = 42;
        atomicExch(out + 1, 1ULL);
    } else {
        while (atomicAdd(out + 1, 0ULL) == 0) {
        }
        __threadfence();
        out[2] = out[0];
    }
}

ZENC_KERNEL(past_the_end, (u64 * out, i64 n)) {
    if (threadIdx.x <= n) out[threadIdx.x] = 1;
}

ZENC_KERNEL(past_shared, (u64 * out, i64 n)) {
    ZENC_SHARED(u64, all, 8);
    u64* cell = all + n;
    *cell = 1;
    out[0] = *cell;
}

// Every thread has 8 bytes of its own, 4 behind those that it may have.
ZENC_KERNEL(misaligned_store, (u64 * out, i64)) {
    auto* const odd = reinterpret_cast<u64*>(reinterpret_cast<u32*>(out) + 1);
    odd[threadIdx.x] = threadIdx.x;
}

ZENC_KERNEL(misaligned_vector, (u64 * out, i64)) {
    const auto* const odd = reinterpret_cast<const uint4*>(out + 1);
    out[threadIdx.x] = odd[threadIdx.x].y;
}

ZENC_KERNEL(misaligned_atomic, (u64 * out, i64)) {
    atomicAdd(reinterpret_cast<u64*>(reinterpret_cast<u32*>(out) + 1), 1ULL);
}

ZENC_KERNEL(too_much_shared, (u64 * out, i64)) {
    ZENC_SHARED(u64, first, 4096);
    ZENC_SHARED(u64, second, 4096);
    out[0] = first[0] + second[0];
}

ZENC_KERNEL(shared_unwritten, (u64 * out, i64)) {
    ZENC_SHARED(u64, all, zenc::THREADS);
    if (threadIdx.x) all[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = all[threadIdx.x];
}

ZENC_KERNEL(divergent_barriers, (u64 * out, i64)) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[0] = 1;
}

ZENC_KERNEL(uneven_barriers, (u64 * out, i64)) {
    for (u32 i = 0; i <= threadIdx.x % 2; i++) __syncthreads();
    out[0] = 1;
}

ZENC_KERNEL(exit_before_barrier, (u64 * out, i64 n)) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

ZENC_KERNEL(exited_lanes, (u64 * out, i64 n)) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = __ballot_sync(ALL_LANES, 1);
}

ZENC_KERNEL(not_in_its_mask, (u64 * out, i64)) {
    out[threadIdx.x] = __ballot_sync(0x55555555U, 1);
}

ZENC_KERNEL(reads_outside_its_mask, (u64 * out, i64)) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffU, threadIdx.x, 16);
}

ZENC_KERNEL(deadlock, (u64 * out, i64)) {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncwarp();
    out[0] = 1;
}

ZENC_KERNEL(spins, (u64 * out, i64)) {
    while (atomicAdd(out, 0ULL) == 0) {
    }
}

ZENC_KERNEL(waits_in_its_block, (u64 * out, i64)) {
    if (threadIdx.x == 0) {
        while (atomicAdd(out, 0ULL) == 0) __nanosleep(100);
    } else if (threadIdx.x == 1) {
        atomicAdd(out, 1ULL);
    }
}

// A block may be the only one that runs, and none need have run before it.
ZENC_KERNEL(waits_for_another_block, (u64 * out, i64)) {
    if (threadIdx.x != 0) return;
    while (blockIdx.x > 0 && atomicAdd(out + blockIdx.x - 1, 0ULL) == 0) __nanosleep(100);
    atomicAdd(out + blockIdx.x, 1ULL);
}

ZENC_KERNEL(trap, (u64*, i64)) {
    if (threadIdx.x == 7) __trap();
}

// Without a fault: for those of programs.
ZENC_KERNEL(add_one, (u64 * out, i64 n)) {
    for (u64 i = zenc::thread_of_row(); i < static_cast<u64>(n); i += zenc::threads_of_row()) out[i] += 1;
}
