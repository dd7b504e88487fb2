// Count sketches (Charikar, Chen, Farach-Colton, ICALP 2002): where a unit is counted, with which sign, and
// what stands out of the noise.
//
// A cell is a sum of integers, multiples of a power of two that each rank takes by the greatest of its own
// magnitudes: in whatever order they are added, the sum is the same. It is rounded to float32 once.
//
// Units are counted in groups, each in cells of its own: few enough for the shared memory of a
// multiprocessor, and the cache of a core.
#pragma once

#include "zenc/compress/philox.h"
#include "zenc/compress/steps.h"
#include "zenc/geometry.h"
#include "zenc/mix.h"

namespace zenc {

constexpr u32 ROWS_DRAWN_TOGETHER = 4;
constexpr u32 MOST_SKETCH_ROWS = 15;
constexpr u64 SKETCH_WORDS = 2048;  // cells of a group, of all rows together, about
constexpr u64 MOST_SKETCH_WORDS = SKETCH_WORDS + MOST_SKETCH_ROWS;
constexpr u64 SKETCH_RUN = 256;  // units of one group that lie together

// The groups of n units in a sketch of `cells` a row. Of as many runs as there are groups, one after another,
// each group has one, in an order that is shifted by a draw: what lies together is spread over all groups.
struct SketchGroups {
    u64 key, n, cells, count, turns;

    ZENC_HD SketchGroups(u64 key, u64 n, u32 rows, u64 cells)
        : key(key),
          n(n),
          cells(cells),
          count(ceil_divide(rows * cells, SKETCH_WORDS)),
          turns(ceil_divide(ceil_divide(n, SKETCH_RUN), count)) {}

    // The first unit of a group's run in a turn; n or more where it has none.
    ZENC_HD u64 run(u64 group, u64 turn) const {
        const u64 place = group + below(mix(key + turn * GOLDEN), count);
        return (turn * count + (place < count ? place : place - count)) * SKETCH_RUN;
    }

    // The cells of a group in each row.
    ZENC_HD u64 first_cell(u64 group) const { return stretch_begin(group, cells, count); }
    ZENC_HD u64 cells_of(u64 group) const { return first_cell(group + 1) - first_cell(group); }

    // The units of a group, at most.
    ZENC_HD u64 most_units() const { return turns * SKETCH_RUN; }
};

// A unit's words in four rows from `row` on: the upper bits of a word are the cell, the lowest is the sign.
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

ZENC_HD inline double square_root(double x) {
#if defined(__CUDA_ARCH__)
    return __dsqrt_rn(x);
#else
    return __builtin_sqrt(x);
#endif
}

ZENC_HD inline i64 counted(float value, double per_unit) {
    const double exact = static_cast<double>(value) * per_unit;
    return static_cast<i64>(exact < 0 ? exact - 0.5 : exact + 0.5);
}

// The noise of a group's estimates. The squares of a row's cells add up to |x|^2 of the units on average, and
// an estimate has the variance |x|^2 / cells. Squares are of integers, which are multiples of 2^exponent, so
// that no order matters.
struct SketchNoise {
    static constexpr u32 LEVELS = 1U << 15;
    static constexpr double LN_4 = 1.3862943611198906;
    int exponent;
    double per_unit;

    ZENC_HD explicit SketchNoise(float greatest)
        : exponent(exponent_of(greatest, LEVELS)), per_unit(wide_power_of_two(-exponent)) {}

    ZENC_HD u64 square(float cell) const {
        const u64 number =
            static_cast<u64>(static_cast<double>(float_of(magnitude_of(cell))) * per_unit + 0.5);
        return number * number;
    }

    // The least magnitude that stands out among the estimates of n units, of which noise of variance 1 hardly
    // passes sqrt(2 ln n).
    ZENC_HD float border(u64 squares, u32 rows, u64 cells, u64 n) const {
        const double unit = wide_power_of_two(exponent);
        double length = 0;  // of n in bits
        for (; n != 0; n >>= 1) length += 1;
        const double variance = static_cast<double>(squares) * unit * unit / static_cast<double>(rows) /
                                static_cast<double>(cells);
        return static_cast<float>(square_root(variance * LN_4 * length));
    }
};

// An estimate that stands out, or what is kept of one that does not: in a sketch with fewer cells than units
// these have more noise than signal, which would grow in the residuals from call to call.
ZENC_HD inline float damped(float estimate, float border, float factor) {
    return float_of(magnitude_of(estimate)) >= border ? estimate : estimate * factor;
}

ZENC_HD inline float damping(u64 cells, u64 n) {
    return static_cast<float>(static_cast<double>(cells) / static_cast<double>(cells + n));
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
