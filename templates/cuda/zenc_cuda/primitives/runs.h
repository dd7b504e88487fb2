// Runs: slots that follow each other and whose units do, too. A mapping moves blocks of a power of two of
// them, so that a warp finds 32 runs by one permutation of each lane, and then reads or writes them in order.
#pragma once

#include "zenc/geometry.h"
#include "zenc_cuda/primitives/platform.h"

namespace zenc {

// The logarithm of the length of the blocks of a mapping.
template <class Mapping>
ZENC_DEVICE u32 run_shift(const Mapping& mapping) {
    return static_cast<u32>(63 - __clzll(static_cast<i64>(mapping.block())));
}

// Numbers at which the runs of a warp are, one a lane.
struct Runs {
    u32 shift;

    ZENC_DEVICE u64 length() const { return 1ULL << shift; }
    ZENC_DEVICE u64 all() const { return static_cast<u64>(WARP) << shift; }

    // visit(step, the lane that knows the run, the place in it) for `steps` numbers of this lane from number
    // `first` on, 32 apart: those of all lanes follow each other.
    template <class Visit>
    ZENC_DEVICE void for_each(u32 first, u32 steps, Visit visit) const {
        for (u32 step = 0; step < steps; ++step) {
            const u32 at = first + step * WARP + lane();
            visit(step, at >> shift, at & ((1U << shift) - 1));
        }
    }
};

}  // namespace zenc
