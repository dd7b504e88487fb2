// Pseudo-random numbers from numbers: what permutations and hashes are made of.
#pragma once

#include "zenc/constants.h"

namespace zenc {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
ZENC_HD inline u64 mix(u64 x) {
    x = (x ^ (x >> 30)) * MIX_FIRST;
    x = (x ^ (x >> 27)) * MIX_SECOND;
    return x ^ (x >> 31);
}

// A number in [0, range) from 64 random bits, by multiplication and shift (Lemire, TOMACS 2019): its bias is
// below range / 2^64, where that of a remainder of 32 bits shows in real gradients.
ZENC_HD inline u64 below(u64 random, u64 range) {
    return multiply_high(random, range);
}

// A pseudo-random number in [0, range): the multiplications of Wellons' lowbias32
// (nullprogram.com/blog/2018/07/31), then multiply-shift (Lemire, TOMACS 2019), which looks at the upper bits
// only. Its bias is below range / 2^32. A SMALL range is at most 2^16: then it is all done in products of 32
// bits, which more processors have for all lanes.
template <bool SMALL>
ZENC_HD inline u32 draw(u32 x, u32 key, u32 range) {
    u32 hash = (x ^ key) * DRAW_FIRST;
    hash = (hash ^ (hash >> 15)) * DRAW_SECOND;
    if (SMALL) return ((hash >> 16) * range + ((hash & 0xffff) * range >> 16)) >> 16;
    return static_cast<u32>((static_cast<u64>(hash) * range) >> 32);
}

// Hash function number `number` of those of a seed: of a unit, its place in a stream of SplitMix64.
struct HashFunction {
    u64 key;

    HashFunction() = default;
    ZENC_HD HashFunction(u64 seed, int number) : key(mix(mix(seed) + (number + u64{1}) * GOLDEN)) {}

    // In [0, range).
    ZENC_HD u64 operator()(u64 unit, u64 range) const { return below(mix(key + (unit + 1) * GOLDEN), range); }
};

}  // namespace zenc
