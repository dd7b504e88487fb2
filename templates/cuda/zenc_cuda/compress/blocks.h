// Sums and greatest values that the threads of a block find together, in an order that does not change.
#pragma once

#include "zenc_cuda/compress/codes.h"
#include "zenc_cuda/scan.h"

namespace zenc {

// Adds the values of all threads, warp by warp, and puts the sum to `to` of this block; 0 does not travel.
ZENC_DEVICE void store_sum_of_block(double value, double* to) {
    ZENC_SHARED(double, sums, WARPS);
    const double mine = sum_of_lanes(value);
    if (lane() == 0) sums[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (u32 warp = 0; warp < WARPS; ++warp) sum += sums[warp];
        to[static_cast<u64>(blockIdx.y) * gridDim.x + blockIdx.x] += sum;
    }
    __syncthreads();
}

ZENC_DEVICE void raise_to(u64* greatest, u32 value) {
    const u32 most = greatest_of_warp(value);
    if (lane() == 0 && load_relaxed(greatest) < most) atomicMax(greatest, static_cast<u64>(most));
}

ZENC_DEVICE void add_of_warp(u64* total, u64 n) {
    const u64 sum = sum_of_warp(n);
    if (lane() == 0 && sum != 0) atomicAdd(total, sum);
}

}  // namespace zenc
