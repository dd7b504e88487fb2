// Bitmaps: arrays of 64-bit words, bit b of word w = number 64 * w + b; and their ranks, which say how many
// bits are set below a word.
//
// Ranks are kept for RANKED_WORDS words at a time, in one word: the number below the first of them, and how
// many more are below the third, the fifth and the seventh. For the others the word that precedes them is
// counted, the neighbour of the one that is looked at anyway. So ranks take an eighth of the bitmap's memory;
// Vigna's rank9 ("Broadword implementation of rank/select queries", WEA 2008), which keeps them for every
// word, takes a fourth.
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

// The number of the lowest bit of a word that is not 0.
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

constexpr u64 MORE_BITS = 9;  // of each of the others: 6 words have 384 bits

// Words from one bitmap to the next in an array of bitmaps that are ranked as one.
ZENC_HD inline u64 ranked_together(u64 words) {
    return ceil_divide(words, RANKED_WORDS) * RANKED_WORDS;
}

// The ranks that are kept of the bitmap of so many slots. The last one is the number of all set bits, and
// nothing else unless other bitmaps follow.
ZENC_HD inline u64 ranks_of(u64 slots) {
    return ceil_divide(words_of(slots), RANKED_WORDS) + 1;
}

ZENC_HD inline u64 made_rank(u64 below, u64 third, u64 fifth, u64 seventh) {
    return ((seventh << MORE_BITS | fifth) << MORE_BITS | third) << RANK_BITS | below;
}

ZENC_HD inline u64 below_first(u64 rank) {
    return rank & low_mask(RANK_BITS);
}

// The number of bits that are set in the words below `word`, for word <= words of the bitmap.
ZENC_HD inline u64 set_below(const u64* bitmap, const u64* ranks, u64 word) {
    const u64 rank = ranks[word / RANKED_WORDS], pair = word % RANKED_WORDS / 2;
    const u64 more = rank >> RANK_BITS << MORE_BITS >> (pair * MORE_BITS) & low_mask(MORE_BITS);
    return below_first(rank) + more + (word % 2 == 0 ? 0 : population(bitmap[word - 1]));
}

// The number of bits that are set between the places of two ranks.
ZENC_HD inline u64 set_between(u64 from, u64 to) {
    return (to - from) & low_mask(RANK_BITS);
}

}  // namespace zenc
