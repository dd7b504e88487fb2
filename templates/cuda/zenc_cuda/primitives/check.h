// Checks of a segment: the blocks that read it agree on one status.
#pragma once

#include "zenc_cuda/primitives/slots.h"

namespace zenc {

// Keeps the fault at the lowest position; of several at one position that with the status nearest to 0.
ZENC_DEVICE void blame(Check* check, u64 position, i64 status) {
    atomicMax(&check->fault, ~(8 * position + static_cast<u64>(-status)));
}

// The verdict on a segment, once all blocks have arrived.
ZENC_DEVICE i64 verdict_of(const Segment& segment, Check* check) {
    const u64 fault = atomicMax(&check->fault, 0ULL);
    if (fault != 0) return -static_cast<i64>(~fault % 8);
    return atomicAdd(&check->count, 0ULL) == occupied(segment) ? 0 : WRONG_COUNT;
}

// Every block says how many slots each of its threads found. The last one to come writes the status, and
// empties the bitmap of a segment that is not what it promised: nothing behind it is led astray.
ZENC_DEVICE void settle(const Segment& segment, u64 found, Check* check, i64* status) {
    constexpr i64 NOT_THE_LAST = 1;
    ZENC_SHARED(i64, verdict, 1);
    for (u32 by = WARP / 2; by != 0; by /= 2) found += __shfl_down_sync(ALL_LANES, found, by);
    if (lane() == 0) atomicAdd(&check->count, found);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool last = atomicAdd(&check->arrived, 1ULL) == gridDim.x - 1;
        __threadfence();
        verdict[0] = last ? verdict_of(segment, check) : NOT_THE_LAST;
        if (last) *status = verdict[0];
    }
    __syncthreads();
    if (verdict[0] >= 0) return;
    for (u64 w = threadIdx.x; w < words_of(segment.slots); w += THREADS) segment.bitmap[w] = 0;
}

}  // namespace zenc
