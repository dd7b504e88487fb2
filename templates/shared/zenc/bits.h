// Bitmaps: arrays of 64-bit words, bit b of word w = number 64 * w + b.
#pragma once

#include "zenc/formats.h"

namespace zenc {

ZENC_HD inline u64 population(u64 word) {
#if defined(__CUDA_ARCH__)
    return static_cast<u64>(__popcll(word));
#else
    return static_cast<u64>(__builtin_popcountll(word));
#endif
}

// Of a word that is not 0.
ZENC_HD inline u64 lowest_bit(u64 word) {
#if defined(__CUDA_ARCH__)
    return static_cast<u64>(__ffsll(static_cast<i64>(word)) - 1);
#else
    return static_cast<u64>(__builtin_ctzll(word));
#endif
}

// The n lowest bits, for n <= 64.
ZENC_HD inline u64 low_mask(u64 n) {
    return n >= 64 ? ~0ULL : (1ULL << n) - 1;
}

// visit(bit) for every set bit of a word, ascending.
template <class Visit>
ZENC_HD inline void for_each_bit(u64 word, Visit visit) {
    for (; word != 0; word &= word - 1) visit(lowest_bit(word));
}

}  // namespace zenc
