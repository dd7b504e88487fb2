// Kernels without a fault, for what emulators get wrong.
#include "zenc_cuda/platform.h"

using zenc::i64;
using zenc::u32;
using zenc::u64;

namespace {

constexpr u32 WARPS = zenc::THREADS / zenc::WARP;

__device__ u32 sum_below(u32 value) {
    u32 sum = value;
    for (u32 distance = 1; distance < zenc::WARP; distance *= 2) {
        const u32 other = __shfl_up_sync(zenc::ALL_LANES, sum, distance);
        if (zenc::lane() >= distance) sum += other;
    }
    return sum - value;
}

// The sum of the values of lower threads of the block, and of all.
__device__ u32 block_sum_below(u32 value, u32& total) {
    ZENC_SHARED(u32, sums, WARPS);
    const u32 warp = threadIdx.x / zenc::WARP, below = sum_below(value);
    if (zenc::lane() == zenc::WARP - 1) sums[warp] = below + value;
    __syncthreads();
    if (warp == 0) {
        const u32 own = zenc::lane() < WARPS ? sums[zenc::lane()] : 0;
        const u32 lower = sum_below(own);
        __syncwarp();
        if (zenc::lane() < WARPS) sums[zenc::lane()] = lower + own;
    }
    __syncthreads();
    total = sums[WARPS - 1];
    const u32 lower = warp ? sums[warp - 1] : 0;
    __syncthreads();
    return lower + below;
}

}  // namespace

// out: the set positions of in[n], ascending; by one block.
ZENC_KERNEL(compact, (const u32* in, i64 n, u32* out)) {
    u32 start = 0;
    for (u32 first = 0; first < n; first += zenc::THREADS) {
        const u32 i = first + threadIdx.x;
        const u32 kept = i < n && in[i] != 0;
        u32 total;
        const u32 place = block_sum_below(kept, total);
        if (kept) out[start + place] = i;
        start += total;
    }
}

// out[b]: the sum of in[0 .. b], one value a block, which waits for the one before it: blocks are numbered as
// they begin, by `drawn`.
ZENC_KERNEL(look_back, (const u64* in, u64* out, u64* done, u64* drawn)) {
    if (threadIdx.x != 0) return;
    const u64 number = atomicAdd(drawn, 1ULL);
    u64 sum = in[number];
    if (number > 0) {
        while (*static_cast<volatile u64*>(done + number - 1) == 0) {
        }
        __threadfence();
        sum += out[number - 1];
    }
    out[number] = sum;
    __threadfence();
    *static_cast<volatile u64*>(done + number) = 1;
}

// Counts values in a table of open addresses, all blocks at once. Keys are not 0.
ZENC_KERNEL(count_values, (const u64* in, i64 n, u64* keys, u64* counts, i64 cells)) {
    for (u64 i = zenc::thread_of_row(); i < static_cast<u64>(n); i += zenc::threads_of_row()) {
        u64 cell = in[i] % static_cast<u64>(cells);
        for (;; cell = (cell + 1) % static_cast<u64>(cells)) {
            const u64 found = atomicCAS(keys + cell, 0ULL, in[i]);
            if (found == 0 || found == in[i]) break;
        }
        atomicAdd(counts + cell, 1ULL);
    }
}

// Each half of a warp on a way of its own; one value of each operation for each lane.
ZENC_KERNEL(halves, (i64 * out)) {
    const u32 lane = zenc::lane();
    const u32 mask = lane < 16 ? 0x0000ffffU : 0xffff0000U;
    i64* own = out + 10 * lane;
    if (lane < 16) {
        own[0] = __shfl_sync(mask, static_cast<i64>(lane), 15);
        own[1] = __ballot_sync(mask, lane % 2);
    } else {
        own[0] = __shfl_sync(mask, static_cast<i64>(lane), 16);
        own[1] = __ballot_sync(mask, lane % 3 == 0);
    }
    own[2] = __shfl_down_sync(zenc::ALL_LANES, lane, 3);
    own[3] = __shfl_xor_sync(zenc::ALL_LANES, lane, 5, 8);
    own[4] = __shfl_up_sync(zenc::ALL_LANES, lane, 2, 16);
    own[5] = __any_sync(mask, lane == 3);
    own[6] = __all_sync(mask, lane < 16);
    own[7] = __match_any_sync(mask, lane / 4);
    own[8] = __reduce_max_sync(mask, lane * 7 % 32);
    own[9] = __reduce_add_sync(zenc::ALL_LANES, lane);
}
