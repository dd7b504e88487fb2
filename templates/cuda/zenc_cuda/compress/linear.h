// Selections of the same coordinates on all ranks: drawn at random, sketched, or probable by what was summed;
// and multiples of a power of two that all ranks share.
#pragma once

#include "zenc/compress/sketch.h"
#include "zenc_cuda/compress/blocks.h"

namespace zenc {

// Draws one unit from each of k stretches of about equal length, for 1 <= k <= n.
ZENC_DEVICE void draw_units(u64 n, u64 k, u64 key, i64* out) {
    for (u64 i = thread_of_row(); i < k; i += threads_of_row())
        out[i] = static_cast<i64>(drawn_unit(key, i, n, k));
}

// out [k, width] = the rows of `units`, which differ; what `out` can't hold of them stays in `left`.
template <class T>
ZENC_DEVICE void take_units(float* left, const i64* units, u64 k, u64 width, T* out, float* velocity) {
    const Divider by(width);
    for (u64 i = thread_of_row(); i < static_cast<u64>(k * width); i += threads_of_row()) {
        const u64 row = by.quotient(i);
        const u64 at = static_cast<u64>(units[row]) * by.divisor + (i - row * by.divisor);
        out[i] = Type<T>::round(left[at]);
        left[at] -= Type<T>::widen(out[i]);
        if (velocity != nullptr) velocity[at] = 0;
    }
}

// history = beta * history + (1 - beta) * |result|.
template <class T>
ZENC_DEVICE void remember(const T* result, u64 n, i64 beta, float* history) {
    const float old = float_of(static_cast<u32>(beta)), fresh = 1 - old;
    for (u64 i = thread_of_row(); i < n; i += threads_of_row())
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

// The greatest of all threads' numbers. Threads meet before they call it again.
ZENC_DEVICE u32 greatest_of_block(u32 value) {
    ZENC_SHARED(u32, found, WARPS);
    const u32 mine = greatest_of_warp(value);
    if (lane() == 0) found[threadIdx.x / WARP] = mine;
    __syncthreads();
    u32 most = 0;
    for (u32 warp = 0; warp < WARPS; ++warp) raise(most, found[warp]);
    return most;
}

// The groups of a sketch that this block works on, a row of the grid each: work(group).
template <class Work>
ZENC_DEVICE void for_sketch_groups(const SketchGroups& groups, Work work) {
    for (u64 group = blockIdx.y; group < groups.count; group += gridDim.y) {
        work(group);
        __syncthreads();
    }
}

// visit(unit) for the units of a group, those of a run side by side.
template <class Visit>
ZENC_DEVICE void for_sketched_units(const SketchGroups& groups, u64 group, Visit visit) {
    for (u64 turn = 0; turn < groups.turns; ++turn)
        for (u64 i = threadIdx.x; i < SKETCH_RUN; i += THREADS)
            if (const u64 unit = groups.run(group, turn) + i; unit < groups.n) visit(unit);
}

// Adds to a sum whose halves are words of their own, whose atomics are native in shared memory.
ZENC_DEVICE void add_in_halves(u32* low, u32* high, u64 number) {
    const u32 below = static_cast<u32>(number);
    const u32 carry = atomicAdd(low, below) + below < below;
    atomicAdd(high, static_cast<u32>(number >> 32) + carry);
}

// out [rows, cells] = the sketch of the values [n]; NaN in the cells of a group that is not finite.
ZENC_DEVICE void insert_in_sketch(const float* values, u64 n, u64 of_rows, u64 cells, u64 key, float* out) {
    ZENC_SHARED(u32, low, MOST_SKETCH_WORDS);
    ZENC_SHARED(u32, high, MOST_SKETCH_WORDS);
    const u32 rows = static_cast<u32>(of_rows);
    const SketchGroups groups(key, n, rows, cells);
    for_sketch_groups(groups, [&](u64 group) {
        const u64 own = groups.cells_of(group), words = rows * own;
        for (u64 i = threadIdx.x; i < words; i += THREADS) low[i] = high[i] = 0;
        u32 most = 0;
        for_sketched_units(groups, group, [&](u64 unit) { raise(most, magnitude_of(values[unit])); });
        const u32 greatest = greatest_of_block(most);
        const bool finite = greatest < INFINITE;
        const int exponent = finite ? sketch_exponent(float_of(greatest), groups.most_units()) : 0;
        const double per_unit = wide_power_of_two(-exponent), step = wide_power_of_two(exponent);
        for_sketched_units(groups, group, [&](u64 unit) {
            const float value = values[unit];
            if (value == 0 || !finite) return;
            for_sketch_rows(groups.key, unit, rows, [&](u32 row, u32 word) {
                const u64 cell = row * own + cell_of(word, own);
                add_in_halves(low + cell, high + cell,
                              static_cast<u64>(counted(signed_by(word, value), per_unit)));
            });
        });
        __syncthreads();
        for (u64 i = threadIdx.x; i < words; i += THREADS) {
            const u64 row = i / own, sum = static_cast<u64>(high[i]) << 32 | low[i];
            const float rounded = static_cast<float>(static_cast<double>(static_cast<i64>(sum)) * step);
            out[row * groups.cells + groups.first_cell(group) + (i - row * own)] =
                finite ? rounded : not_a_number();
        }
    });
}

// The median of a unit's estimates, by the cells of its group. ROWS is their number, so that all are in
// registers; or 0, where `of_rows` is.
template <u32 ROWS>
ZENC_DEVICE float median_of(u64 key, u64 unit, u32 of_rows, const float* own_cells, u64 own) {
    const u32 rows = ROWS != 0 ? ROWS : of_rows;
    float estimates[ROWS != 0 ? ROWS : MOST_SKETCH_ROWS] = {};
    for_sketch_rows(key, unit, rows, [&](u32 row, u32 word) {
        estimates[row] = signed_by(word, own_cells[row * own + cell_of(word, own)]);
    });
    sort_neighbours(rows, [&](u32 a, u32 b) { put_in_order(estimates[a], estimates[b]); });
    const float lower = estimates[(rows - 1) / 2], upper = estimates[rows / 2];
    return rows % 2 ? upper : between(lower, upper);
}

// out [n] = the median of each unit's estimates, damped where it does not stand out.
template <class T>
ZENC_DEVICE void query_sketch(const float* sketch, u64 n, u64 of_rows, u64 cells, u64 key, T* out) {
    ZENC_SHARED(float, own_cells, MOST_SKETCH_WORDS);
    ZENC_SHARED(u64, squares, 1);
    const u32 rows = static_cast<u32>(of_rows);
    const SketchGroups groups(key, n, rows, cells);
    const float factor = damping(groups.cells, groups.n);
    for_sketch_groups(groups, [&](u64 group) {
        const u64 own = groups.cells_of(group), words = rows * own;
        u32 most = 0;
        for (u64 i = threadIdx.x; i < words; i += THREADS) {
            const u64 row = i / own;
            own_cells[i] = sketch[row * groups.cells + groups.first_cell(group) + (i - row * own)];
            raise(most, magnitude_of(own_cells[i]));
        }
        if (threadIdx.x == 0) *squares = 0;
        const u32 greatest = greatest_of_block(most);
        const SketchNoise noise(greatest < INFINITE ? float_of(greatest) : 0);
        u64 sum = 0;
        for (u64 i = threadIdx.x; i < words && greatest < INFINITE; i += THREADS)
            sum += noise.square(own_cells[i]);
        add_of_warp(squares, sum);
        __syncthreads();
        const float border = noise.border(*squares, rows, own, groups.n);
        for_sketched_units(groups, group, [&](u64 unit) {
            const float found = rows == 3   ? median_of<3>(groups.key, unit, rows, own_cells, own)
                                : rows == 5 ? median_of<5>(groups.key, unit, rows, own_cells, own)
                                            : median_of<0>(groups.key, unit, rows, own_cells, own);
            out[unit] = Type<T>::round(damped(found, border, factor));
        });
    });
}

// Each `chunk` of values [n], without a rest, becomes its product with matrix [chunk, chunk].
//
// Products of floats are exact as doubles: a fused sum has the same bits.
ZENC_DEVICE void transform(float* values, u64 n, u64 chunk, const float* matrix) {
    ZENC_SHARED(float, own, TRANSFORMED);
    const u64 together = TRANSFORMED / chunk * chunk;
    for (u64 first = blockIdx.y * together; first < n; first += gridDim.y * together) {
        const u64 rest = n - first, count = rest < together ? rest : together;
        for (u64 i = threadIdx.x; i < count; i += THREADS) own[i] = values[first + i];
        __syncthreads();
        for (u64 at = threadIdx.x; at < count; at += THREADS) {
            const u64 column = at % chunk;
            double sum = 0;
            for (u64 i = 0; i < chunk; ++i)
                sum += static_cast<double>(own[at - column + i]) * matrix[i * chunk + column];
            values[first + at] = static_cast<float>(sum);
        }
        __syncthreads();
    }
}

// left becomes what is lost; gradient the multiples, which are exact if its type has the bits for them.
template <class T>
ZENC_DEVICE void quantise_fixed(float* left, u64 n, i64 exponent, i64 levels, T* gradient) {
    const float step = step_with(static_cast<int>(exponent));
    const int most = static_cast<int>(levels);
    for (u64 i = thread_of_row(); i < n; i += threads_of_row()) {
        const float x = left[i];
        gradient[i] = Type<T>::round(static_cast<float>(clamp_to(nearest(x / step), most)) * step);
        left[i] = x - Type<T>::widen(gradient[i]);
    }
}

}  // namespace zenc
