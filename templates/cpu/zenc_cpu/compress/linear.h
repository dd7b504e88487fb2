// Selections of the same coordinates on all ranks: drawn at random, sketched, or probable by what was summed.
#pragma once

#include "zenc/compress/sketch.h"
#include "zenc_cpu/compress/random.h"
#include "zenc_cpu/compress/take.h"

namespace zenc {

// One unit of each of k stretches of as equal a length as there is, for 1 <= k <= n.
inline void draw_units(u64 n, u64 k, u64 key, i64* out) {
    for_drawn(n, k, key, [&](u64 i, u64 unit) { out[i] = static_cast<i64>(unit); });
}

// out [k, width] = the rows of `units`; what is left of them stays.
template <class T>
inline void take_units(float* left, const i64* units, u64 k, u64 width, T* out, float* velocity) {
    for (u64 i = 0; i < k; ++i) {
        const u64 at = static_cast<u64>(units[i]) * width;
        take_row(left + at, width, true, out + i * width, velocity ? velocity + at : nullptr);
    }
}

// out [n, width] = the rows of `values`, at their units; +0 else.
template <class T>
inline void put_units(const T* values, const i64* units, u64 k, u64 width, u64 n, T* out) {
    std::memset(static_cast<void*>(out), 0, n * width * sizeof(T));
    for (u64 i = 0; i < k; ++i)
        std::memcpy(static_cast<void*>(out + static_cast<u64>(units[i]) * width), values + i * width,
                    width * sizeof(T));
}

// history = beta * history + (1 - beta) * |result|.
template <class T>
inline void remember(const T* result, u64 n, float beta, float* history) {
    const float fresh = 1 - beta;
    for (u64 i = 0; i < n; ++i)
        history[i] = beta * history[i] + fresh * float_of(magnitude_of(Type<T>::widen(result[i])));
}

constexpr u64 SKETCHED_TOGETHER = 256;

// visit(unit, row, word) for n units and all rows.
template <class Visit>
inline void for_sketch_words(u64 key, u64 n, u32 rows, Visit visit) {
    u32 words[ROWS_DRAWN_TOGETHER][SKETCHED_TOGETHER];
    for (u64 first = 0; first < n; first += SKETCHED_TOGETHER) {
        const u64 length = n - first < SKETCHED_TOGETHER ? n - first : SKETCHED_TOGETHER;
        for (u32 row = 0; row < rows; row += ROWS_DRAWN_TOGETHER) {
            for (u64 i = 0; i < SKETCHED_TOGETHER; i += COUNTERS)  // as sketch_words
                random_group(key, first + i, row / ROWS_DRAWN_TOGETHER, words[0] + i, SKETCHED_TOGETHER);
            for (u32 r = row; r < rows && r < row + ROWS_DRAWN_TOGETHER; ++r)
                visit(first, length, r, words[r - row]);
        }
    }
}

// out [rows, cells] = the sketch of `values` [n]. `work` [rows * cells] is written over.
inline void sketch(const float* values, u64 n, u32 rows, u64 cells, u64 key, i64* work, float* out) {
    const u32 greatest = greatest_magnitude(values, n);
    if (greatest >= INFINITE) {
        for (u64 i = 0; i < rows * cells; ++i) out[i] = not_a_number();
        return;
    }
    const int exponent = sketch_exponent(float_of(greatest), n);
    const double per_unit = wide_power_of_two(-exponent), unit = wide_power_of_two(exponent);
    std::memset(work, 0, rows * cells * sizeof(i64));
    for_sketch_words(key, n, rows, [&](u64 first, u64 length, u32 row, const u32* words) {
        i64* const counts = work + row * cells;
        i64 numbers[SKETCHED_TOGETHER];
        u32 places[SKETCHED_TOGETHER];
        for (u64 i = 0; i < length; ++i)
            numbers[i] = counted(signed_by(words[i], values[first + i]), per_unit);
        for (u64 i = 0; i < length; ++i) places[i] = static_cast<u32>(cell_of(words[i], cells));
        for (u64 i = 0; i < length; ++i) counts[places[i]] += numbers[i];
    });
    for (u64 i = 0; i < rows * cells; ++i) out[i] = static_cast<float>(static_cast<double>(work[i]) * unit);
}

// out [n] = the median of each unit's estimates.
template <class T>
inline void query_sketch(const float* sketch, u64 n, u32 rows, u64 cells, u64 key, T* out) {
    float estimates[MOST_SKETCH_ROWS][SKETCHED_TOGETHER] = {};
    for_sketch_words(key, n, rows, [&](u64 first, u64 length, u32 row, const u32* words) {
        const float* const sums = sketch + row * cells;
        float* const here = estimates[row];
        for (u64 i = 0; i < length; ++i) here[i] = signed_by(words[i], sums[cell_of(words[i], cells)]);
        if (row + 1 != rows) return;
        sort_neighbours(rows, [&](u32 a, u32 b) {
            for (u64 i = 0; i < SKETCHED_TOGETHER; ++i) put_in_order(estimates[a][i], estimates[b][i]);
        });
        const float* const low = estimates[(rows - 1) / 2];
        const float* const high = estimates[rows / 2];
        for (u64 i = 0; i < length; ++i) {
            const float median = rows % 2 ? high[i] : between(low[i], high[i]);
            out[first + i] = Type<T>::round(median);
        }
    });
}

}  // namespace zenc
