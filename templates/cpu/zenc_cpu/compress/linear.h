// Selections of the same coordinates on all ranks: drawn at random, sketched, or probable by what was summed.
#pragma once

#include "zenc/compress/sketch.h"
#include "zenc_cpu/compress/random.h"
#include "zenc_cpu/compress/take.h"

namespace zenc {

// Draws one unit from each of k stretches of about equal length, for 1 <= k <= n.
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

// history = beta * history + (1 - beta) * |result|.
template <class T>
inline void remember(const T* result, u64 n, float beta, float* history) {
    const float fresh = 1 - beta;
    for (u64 i = 0; i < n; ++i)
        history[i] = beta * history[i] + fresh * float_of(magnitude_of(Type<T>::widen(result[i])));
}

// visit(first, length, row, words) for the runs of a group and all rows.
template <class Visit>
inline void for_sketch_words(const SketchGroups& groups, u64 group, u32 rows, Visit visit) {
    u32 words[ROWS_DRAWN_TOGETHER][SKETCH_RUN];
    for (u64 turn = 0; turn < groups.turns; ++turn) {
        const u64 first = groups.run(group, turn);
        if (first >= groups.n) continue;
        const u64 length = groups.n - first < SKETCH_RUN ? groups.n - first : SKETCH_RUN;
        for (u32 row = 0; row < rows; row += ROWS_DRAWN_TOGETHER) {
            for (u64 i = 0; i < SKETCH_RUN; i += COUNTERS)  // as sketch_words
                random_group(groups.key, first + i, row / ROWS_DRAWN_TOGETHER, words[0] + i, SKETCH_RUN);
            for (u32 r = row; r < rows && r < row + ROWS_DRAWN_TOGETHER; ++r)
                visit(first, length, r, words[r - row]);
        }
    }
}

// The greatest magnitude of a group's values.
inline u32 greatest_of_group(const SketchGroups& groups, u64 group, const float* values) {
    u32 greatest = 0;
    for (u64 turn = 0; turn < groups.turns; ++turn) {
        const u64 first = groups.run(group, turn);
        if (first >= groups.n) continue;
        const u64 length = groups.n - first < SKETCH_RUN ? groups.n - first : SKETCH_RUN;
        const u32 here = greatest_magnitude(values + first, length);
        greatest = greatest < here ? here : greatest;
    }
    return greatest;
}

// out [rows, cells] = the sketch of `values` [n]; NaN in the cells of a group that is not finite.
inline void sketch(const float* values, u64 n, u32 rows, u64 cells, u64 key, float* out) {
    const SketchGroups groups(key, n, rows, cells);
    i64 counts[MOST_SKETCH_WORDS];
    for (u64 group = 0; group < groups.count; ++group) {
        const u64 own = groups.cells_of(group);
        const u32 greatest = greatest_of_group(groups, group, values);
        const bool finite = greatest < INFINITE;
        const int exponent = finite ? sketch_exponent(float_of(greatest), groups.most_units()) : 0;
        const double per_unit = wide_power_of_two(-exponent), unit = wide_power_of_two(exponent);
        std::memset(counts, 0, rows * own * sizeof(i64));
        if (finite)
            for_sketch_words(groups, group, rows, [&](u64 first, u64 length, u32 row, const u32* words) {
                i64* const of_row = counts + row * own;
                i64 numbers[SKETCH_RUN];
                u32 places[SKETCH_RUN];
                for (u64 i = 0; i < length; ++i)
                    numbers[i] = counted(signed_by(words[i], values[first + i]), per_unit);
                for (u64 i = 0; i < length; ++i) places[i] = static_cast<u32>(cell_of(words[i], own));
                for (u64 i = 0; i < length; ++i) of_row[places[i]] += numbers[i];
            });
        for (u32 row = 0; row < rows; ++row)
            for (u64 i = 0; i < own; ++i)
                out[row * cells + groups.first_cell(group) + i] =
                    finite ? static_cast<float>(static_cast<double>(counts[row * own + i]) * unit)
                           : not_a_number();
    }
}

// The least estimate of a group that stands out; `cells` [rows, own] are the group's. 0 if any is not finite.
inline float border_of_group(const float* cells, u64 own, u32 rows, u64 n) {
    const u32 greatest = greatest_magnitude(cells, rows * own);
    if (greatest >= INFINITE) return 0;
    const SketchNoise noise(float_of(greatest));
    u64 squares = 0;
    for (u64 i = 0; i < rows * own; ++i) squares += noise.square(cells[i]);
    return noise.border(squares, rows, own, n);
}

// out [n] = the median of each unit's estimates, damped where it does not stand out.
template <class T>
inline void query_sketch(const float* sketch, u64 n, u32 rows, u64 cells, u64 key, T* out) {
    const SketchGroups groups(key, n, rows, cells);
    const float factor = damping(cells, n);
    float estimates[MOST_SKETCH_ROWS][SKETCH_RUN] = {}, own_cells[MOST_SKETCH_WORDS];
    for (u64 group = 0; group < groups.count; ++group) {
        const u64 own = groups.cells_of(group);
        for (u32 row = 0; row < rows; ++row)
            std::memcpy(own_cells + row * own, sketch + row * cells + groups.first_cell(group),
                        own * sizeof(float));
        const float border = border_of_group(own_cells, own, rows, n);
        for_sketch_words(groups, group, rows, [&](u64 first, u64 length, u32 row, const u32* words) {
            const float* const sums = own_cells + row * own;
            float* const here = estimates[row];
            for (u64 i = 0; i < length; ++i) here[i] = signed_by(words[i], sums[cell_of(words[i], own)]);
            if (row + 1 != rows) return;
            sort_neighbours(rows, [&](u32 a, u32 b) {
                for (u64 i = 0; i < SKETCH_RUN; ++i) put_in_order(estimates[a][i], estimates[b][i]);
            });
            const float* const low = estimates[(rows - 1) / 2];
            const float* const high = estimates[rows / 2];
            for (u64 i = 0; i < length; ++i) {
                const float median = rows % 2 ? high[i] : between(low[i], high[i]);
                out[first + i] = Type<T>::round(damped(median, border, factor));
            }
        });
    }
}

}  // namespace zenc
