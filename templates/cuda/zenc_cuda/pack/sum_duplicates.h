// Placing the rows of units that come several times: each is the sum of its inputs in their order, added in
// the type that sums are made in and rounded once, as on the CPU; no atomics. A row that comes once is
// copied.
#pragma once

#include "zenc/values.h"
#include "zenc/work.h"
#include "zenc_cuda/pack/row_places.h"

namespace zenc {

// The inputs of all rows, by sorted keys (sort.h): those of a row follow each other.
template <class T>
struct SummedInputs {
    using Sum = typename Type<T>::Sum;

    const u64* keys;
    u64 positions;
    const T* values;
    u64 width;
    Sum divisor;

    // A position has the lowest `shift` bits of a key.
    ZENC_DEVICE SummedInputs(const u64* keys_, i64 shift, const T* values_, i64 width_, i64 divisor_)
        : keys(keys_),
          positions(low_mask(static_cast<u64>(shift))),
          values(values_),
          width(static_cast<u64>(width_)),
          divisor(static_cast<Sum>(divisor_)) {}

    ZENC_DEVICE u64 position(u64 key) const { return keys[key] & positions; }
    ZENC_DEVICE T load(u64 key, u64 column) const { return values[position(key) * width + column]; }

    ZENC_DEVICE Sum widen(T value) const {
        const Sum wide = Type<T>::widen(value);
        return divisor == 1 ? wide : wide / divisor;
    }

    // The sum of n inputs (n >= 1) in one column.
    ZENC_DEVICE T sum(u64 first, u64 n, u64 column) const {
        constexpr u32 AHEAD = 4;  // loads under way
        if (n == 1 && divisor == 1) return load(first, column);
        Sum sum = 0;
        for (u64 at = 0; at < n; at += AHEAD) {
            T loaded[AHEAD];
            for (u32 k = 0; k < AHEAD; ++k)
                if (at + k < n) loaded[k] = load(first + at + k, column);
            for (u32 k = 0; k < AHEAD; ++k)
                if (at + k < n) sum = at + k == 0 ? widen(loaded[k]) : sum + widen(loaded[k]);
        }
        return Type<T>::round(sum);
    }
};

// visit(first column, columns) for the ranges of columns of this row of the grid.
template <class Visit>
ZENC_DEVICE void for_each_range(u64 width, Visit visit) {
    for (u64 column = blockIdx.y * SUM_COLUMNS; column < width; column += gridDim.y * SUM_COLUMNS)
        visit(column, width - column < SUM_COLUMNS ? width - column : SUM_COLUMNS);
}

// The threads of a block on one row: the smallest power of two that has its columns.
struct ColumnThreads {
    u32 size = 1;

    ZENC_DEVICE ColumnThreads(u64 columns, u32 most) {
        while (size < most && size < columns) size *= 2;
    }

    ZENC_DEVICE u32 column() const { return threadIdx.x % size; }
    ZENC_DEVICE u32 number() const { return threadIdx.x / size; }
    ZENC_DEVICE u32 in_block() const { return THREADS / size; }
};

// The address of a row whose first key is known.
template <class T, class Mapping>
ZENC_DEVICE T* row_address(const Places<Mapping>& places, const i64* slots, const SummedInputs<T>& inputs,
                           u64 row, u64 first) {
    const u64 slot = static_cast<u64>(slots[inputs.position(first)]);
    return places.template address<T>(places.geometry.part_of(slot), row);
}

// Those of the `distinct` rows that are not popular, from sorted keys and where those of each row begin.
// `slots` are those of the inputs.
//
// Reads each input once and 8 bytes of key for it, writes each row once; reads 40 bytes a row.
template <class T, class Mapping>
ZENC_DEVICE void place_summed(const Places<Mapping>& places, const i64* slots, const SummedInputs<T>& inputs,
                              const u64* starts, u64 distinct) {
    ZENC_SHARED(u64, keys, THREADS);
    ZENC_SHARED(u64, numbers, THREADS);
    ZENC_SHARED(T*, addresses, THREADS);
    const u64 fair = ceil_divide(distinct, gridDim.x);
    const u64 tile = fair < THREADS ? fair : THREADS;
    for (u64 first = blockIdx.x * tile; first < distinct; first += gridDim.x * tile) {
        const u64 rows = distinct - first < tile ? distinct - first : tile;
        if (const u64 row = first + threadIdx.x; threadIdx.x < rows) {  // each thread finds one
            keys[threadIdx.x] = starts[row];
            numbers[threadIdx.x] = starts[row + 1] - starts[row];
            addresses[threadIdx.x] = row_address(places, slots, inputs, row, starts[row]);
        }
        __syncthreads();
        for_each_range(inputs.width, [&](u64 column, u64 columns) {
            const ColumnThreads threads(columns, WARP);
            for (u64 row = threads.number(); row < rows; row += threads.in_block())
                if (numbers[row] <= MOST_INPUTS)
                    for (u64 i = column + threads.column(); i < column + columns; i += threads.size)
                        addresses[row][i] = inputs.sum(keys[row], numbers[row], i);
        });
        __syncthreads();
    }
}

// The sum of n inputs in some columns, by the block: all threads load, and those of the first input add what
// the others have loaded. The next inputs are under way meanwhile.
template <class T>
ZENC_DEVICE void sum_by_block(const SummedInputs<T>& inputs, u64 first, u64 n, u64 column, u64 columns,
                              T* to) {
    using Sum = typename Type<T>::Sum;
    constexpr u32 EACH = 8;  // inputs of a thread at a time
    ZENC_SHARED(Sum, wide, THREADS * EACH);
    const ColumnThreads threads(columns, SUM_COLUMNS);
    const u32 at_once = EACH * threads.in_block();
    const bool mine = threads.column() < columns;
    T loaded[EACH];
    const auto load = [&](u64 at) {
        for (u32 k = 0; k < EACH; ++k) {
            const u64 input = at + k * threads.in_block() + threads.number();
            if (mine && input < n) loaded[k] = inputs.load(first + input, column + threads.column());
        }
    };
    Sum sum = 0;
    load(0);
    for (u64 at = 0; at < n; at += at_once) {
        for (u32 k = 0; k < EACH; ++k)
            if (mine && at + k * threads.in_block() + threads.number() < n)
                wide[k * THREADS + threadIdx.x] = inputs.widen(loaded[k]);
        __syncthreads();
        load(at + at_once);
        if (mine && threads.number() == 0) {
            const u32 there = static_cast<u32>(n - at < at_once ? n - at : at_once);
            for (u32 k = 0; k < there; ++k) {
                const Sum next = wide[k * threads.size + threadIdx.x];
                sum = at + k == 0 ? next : sum + next;
            }
        }
        __syncthreads();
    }
    if (mine && threads.number() == 0) to[column + threads.column()] = Type<T>::round(sum);
}

// The popular rows, as place_summed does the others. Reads and writes the same, by blocks.
template <class T, class Mapping>
ZENC_DEVICE void place_popular(const Places<Mapping>& places, const i64* slots, const SummedInputs<T>& inputs,
                               const u64* starts, const u64* popular) {
    for (u64 i = blockIdx.x; i < popular[0]; i += gridDim.x) {
        const u64 row = popular[1 + i];
        T* const to = row_address(places, slots, inputs, row, starts[row]);
        for_each_range(inputs.width, [&](u64 column, u64 columns) {
            sum_by_block(inputs, starts[row], starts[row + 1] - starts[row], column, columns, to);
        });
    }
}

}  // namespace zenc
