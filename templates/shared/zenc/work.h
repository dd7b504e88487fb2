// The work space of kernels that scan and sort, in words: what a launcher has to provide.
#pragma once

#include "zenc/segment.h"

namespace zenc {

constexpr u64 DIGITS = 1 << DIGIT_BITS;

// The words of a bitmap whose bits are counted for its ranks; the last one is behind all others.
ZENC_HD inline u64 words_ranked(u64 slots) {
    return (ranks_of(slots) - 1) * RANKED_WORDS + 1;
}

// To scan n numbers: a counter and a state a tile. They are 0 before.
ZENC_HD inline u64 scan_words(u64 n) {
    return 1 + ceil_divide(n, SCAN_TILE);
}

// The counts of all digits in all tiles of n keys.
ZENC_HD inline u64 digit_words(u64 n) {
    return ceil_divide(n, SORT_TILE) * DIGITS;
}

// Columns of a row that are summed together: row y of the grid has range y.
constexpr u64 SUM_COLUMNS = 64;

// The list of popular rows of n inputs: their number, which is 0 before, and they. Rows of more than
// MOST_INPUTS are popular: blocks sum them, others are summed by a thread a column.
ZENC_HD inline u64 popular_words(u64 n) {
    return 1 + n / (MOST_INPUTS + 1);
}

// The bits of a number below n.
ZENC_HD inline u64 bits_below(u64 n) {
    u64 bits = 0;
    for (; n > 1; n = ceil_divide(n, 2)) ++bits;
    return bits;
}

}  // namespace zenc
