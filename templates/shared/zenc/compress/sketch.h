// Count sketches (Charikar, Chen, Farach-Colton, ICALP 2002): where a unit is counted, and with which sign.
//
// A cell is a sum of integers, multiples of a power of two that each rank takes by the greatest of its own
// magnitudes: in whatever order they are added, the sum is the same. It is rounded to float32 once.
#pragma once

#include "zenc/compress/philox.h"
#include "zenc/compress/steps.h"

namespace zenc {

constexpr u32 ROWS_DRAWN_TOGETHER = 4;
constexpr u32 MOST_SKETCH_ROWS = 15;

// Of four rows from `row` on, those of a unit: the upper bits of a word are the cell, the lowest is the sign.
ZENC_HD inline Philox sketch_words(u64 key, u64 unit, u32 row) {
    return philox(key, unit, row / ROWS_DRAWN_TOGETHER);
}

ZENC_HD inline u64 cell_of(u32 word, u64 cells) {
    return random_below(word, cells);
}

ZENC_HD inline float signed_by(u32 word, float value) {
    return float_of(bits_of(value) ^ word << 31);
}

// The exponent of what is counted: n magnitudes up to `greatest` stay below 2^62.
ZENC_HD inline int sketch_exponent(float greatest, u64 n) {
    int room = 61;
    for (; n != 0; n >>= 1) --room;
    return exponent_of(greatest, 1) - room;
}

// 2^exponent, for -1022 <= exponent <= 1023.
ZENC_HD inline double wide_power_of_two(int exponent) {
    const u64 bits = static_cast<u64>(exponent + 1023) << 52;
#if defined(__CUDA_ARCH__)
    return __longlong_as_double(static_cast<i64>(bits));
#else
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

ZENC_HD inline i64 counted(float value, double per_unit) {
    const double exact = static_cast<double>(value) * per_unit;
    return static_cast<i64>(exact < 0 ? exact - 0.5 : exact + 0.5);
}

// compare(i, i + 1) of neighbours among n numbers, after which they are sorted.
template <class Compare>
ZENC_HD inline void sort_neighbours(u32 n, Compare compare) {
    for (u32 round = 0; round < n; ++round)
        for (u32 i = round % 2; i + 1 < n; i += 2) compare(i, i + 1);
}

ZENC_HD inline void put_in_order(float& a, float& b) {
    const float less = b < a ? b : a, more = b < a ? a : b;
    a = less;
    b = more;
}

// The median of an even number of estimates, by the two in the middle.
ZENC_HD inline float between(float a, float b) {
    return a / 2 + b / 2;
}

}  // namespace zenc
