// Selections of the same coordinates on all ranks: drawn at random, sketched, or probable by what was summed;
// and multiples of a power of two that all ranks share.
#pragma once

#include "zenc/compress/sketch.h"
#include "zenc_cuda/compress/blocks.h"

namespace zenc {

// One unit of each of k stretches of as equal a length as there is, for 1 <= k <= n.
ZENC_DEVICE void draw_units(i64 n, i64 k, i64 key, i64* out) {
    const u64 wanted = static_cast<u64>(k);
    for (u64 i = thread_of_row(); i < wanted; i += threads_of_row())
        out[i] = static_cast<i64>(drawn_unit(static_cast<u64>(key), i, static_cast<u64>(n), wanted));
}

// out [k, width] = the rows of `units`, each of which comes once; what is left of them stays.
//
// Reads 4 and writes 8 bytes a float32 that is taken, and reads 8 bytes a unit.
template <class T>
ZENC_DEVICE void take_units(float* left, const i64* units, i64 k, i64 width, T* out, float* velocity) {
    const Divider by(static_cast<u64>(width));
    for (u64 i = thread_of_row(); i < static_cast<u64>(k * width); i += threads_of_row()) {
        const u64 row = by.quotient(i);
        const u64 at = static_cast<u64>(units[row]) * by.divisor + (i - row * by.divisor);
        out[i] = Type<T>::round(left[at]);
        left[at] -= Type<T>::widen(out[i]);
        if (velocity != nullptr) velocity[at] = 0;
    }
}

// history = beta * history + (1 - beta) * |result|.
//
// Reads 8 and writes 4 bytes a float32.
template <class T>
ZENC_DEVICE void remember(const T* result, i64 n, i64 beta, float* history) {
    const float old = float_of(static_cast<u32>(beta)), fresh = 1 - old;
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row())
        history[i] = old * history[i] + fresh * float_of(magnitude_of(Type<T>::widen(result[i])));
}

// visit(row, word) for the rows of a sketch.
template <class Visit>
ZENC_DEVICE void for_sketch_rows(u64 key, u64 unit, u32 rows, Visit visit) {
    for (u32 row = 0; row < rows; row += ROWS_DRAWN_TOGETHER) {
        const Philox drawn = sketch_words(key, unit, row);
        for (u32 r = row; r < rows && r < row + ROWS_DRAWN_TOGETHER; ++r) visit(r, drawn.word[r - row]);
    }
}

// The exponent of what is counted, found by one thread for all.
ZENC_DEVICE int exponent_of_sketch(const u64* greatest, u64 n) {
    ZENC_SHARED(int, exponent, 1);
    if (threadIdx.x == 0) *exponent = sketch_exponent(float_of(static_cast<u32>(*greatest)), n);
    __syncthreads();
    return *exponent;
}

// counts [rows, cells], 0 before, += the values [n] as integers, whose sums are the same in any order.
//
// Reads 4 bytes a float32, and adds 8 for each row.
ZENC_DEVICE void insert_in_sketch(const float* values, i64 n, i64 rows, i64 cells, i64 key,
                                  const u64* greatest, u64* counts) {
    if (*greatest >= INFINITE) return;
    const double per_unit = wide_power_of_two(-exponent_of_sketch(greatest, static_cast<u64>(n)));
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        const float value = values[i];
        if (value == 0) continue;
        for_sketch_rows(static_cast<u64>(key), i, static_cast<u32>(rows), [&](u32 row, u32 word) {
            const i64 number = counted(signed_by(word, value), per_unit);
            const u64 cell = cell_of(word, static_cast<u64>(cells));
            atomicAdd(counts + row * static_cast<u64>(cells) + cell, static_cast<u64>(number));
        });
    }
}

// out [cells of all rows] = the sums, rounded once; NaN where values [n] are not finite.
ZENC_DEVICE void round_sketch(const u64* counts, i64 cells, i64 n, const u64* greatest, float* out) {
    const bool finite = *greatest < INFINITE;
    const double unit = finite ? wide_power_of_two(exponent_of_sketch(greatest, static_cast<u64>(n))) : 0;
    for (u64 i = thread_of_row(); i < static_cast<u64>(cells); i += threads_of_row())
        out[i] = finite ? static_cast<float>(static_cast<double>(static_cast<i64>(counts[i])) * unit)
                        : not_a_number();
}

// out [n] = the median of each unit's estimates.
//
// Reads 4 bytes for each row, and writes a value.
template <class T>
ZENC_DEVICE void query_sketch(const float* sketch, i64 n, i64 of_rows, i64 cells, i64 key, T* out) {
    const u32 rows = static_cast<u32>(of_rows);
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        float estimates[MOST_SKETCH_ROWS] = {};
        for_sketch_rows(static_cast<u64>(key), i, rows, [&](u32 row, u32 word) {
            const u64 at = row * static_cast<u64>(cells) + cell_of(word, static_cast<u64>(cells));
            estimates[row] = signed_by(word, sketch[at]);
        });
        sort_neighbours(rows, [&](u32 a, u32 b) { put_in_order(estimates[a], estimates[b]); });
        const float low = estimates[(rows - 1) / 2], high = estimates[rows / 2];
        out[i] = Type<T>::round(rows % 2 ? high : between(low, high));
    }
}

// left becomes what is lost; gradient the multiples, which are exact if its type has the bits for them.
//
// Reads 4 and writes 8 bytes a float32.
template <class T>
ZENC_DEVICE void quantise_fixed(float* left, i64 n, i64 exponent, i64 levels, T* gradient) {
    const bool finite = exponent != NOT_FINITE;
    const float step = finite ? power_of_two(static_cast<int>(exponent)) : not_a_number();
    const int most = static_cast<int>(levels);
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        const float x = left[i];
        gradient[i] = Type<T>::round(static_cast<float>(clamp_to(nearest(x / step), most)) * step);
        left[i] = x - Type<T>::widen(gradient[i]);
    }
}

}  // namespace zenc
