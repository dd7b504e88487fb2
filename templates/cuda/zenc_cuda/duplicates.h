// Units that come several times: their inputs in the order of their rows, and the sums of these.
#pragma once

#include "zenc/launch.h"
#include "zenc/values.h"
#include "zenc_cuda/pack.h"

namespace zenc {

// Inputs in the order of their rows, for units that come several times. A key is row << shift | position in
// the input; a stable sort by the digits of the row, least significant digits first, leaves the inputs of a
// row in their order. A pass over one digit is three launches: digit_counts, scan, sort_by_digit.

// Reads 8 bytes of slots, one or two words of the bitmap and one of ranks an input; writes 8.
template <class Mapping>
ZENC_DEVICE void make_keys(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots, i64 n,
                           i64 shift, u64* keys) {
    const Places<Mapping> places{geometry, parts};
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row())
        keys[i] = places.row_of(static_cast<u64>(slots[i])) << shift | i;
}

// A tile of keys in a block: each warp has EACH times 32 of them, which follow each other.
class DigitTile {
public:
    static constexpr u32 EACH = SORT_TILE / THREADS;

    // What warps count apart, [WARPS][DIGITS].
    using Counts = u32*;

    ZENC_DEVICE DigitTile(const u64* keys, u64 n, u64 tile, i64 shift, Counts counts)
        : first_(tile * SORT_TILE + threadIdx.x / WARP * WARP * EACH + lane()),
          n_(n),
          shift_(static_cast<u32>(shift)),
          mine_(counts + threadIdx.x / WARP * DIGITS) {
        for (u32 k = 0; k < EACH; ++k) keys_[k] = first_ + k * WARP < n_ ? keys[first_ + k * WARP] : 0;
        for (u32 digit = lane(); digit < DIGITS; digit += WARP) mine_[digit] = 0;
        __syncwarp();
        for (u32 k = 0; k < EACH; ++k) ranks_[k] = rank(k);
        __syncthreads();
    }

    // visit(key, digit, rank among the keys of this digit in this warp) for the keys of this thread.
    template <class Visit>
    ZENC_DEVICE void for_each(Visit visit) const {
        for (u32 k = 0; k < EACH; ++k)
            if (first_ + k * WARP < n_) visit(keys_[k], digit(k), ranks_[k]);
    }

private:
    ZENC_DEVICE u32 digit(u32 k) const { return static_cast<u32>(keys_[k] >> shift_) % DIGITS; }

    // Counts the keys of round k. Lanes with the same digit find each other; the first of them counts for
    // all.
    ZENC_DEVICE u32 rank(u32 k) {
        const bool there = first_ + k * WARP < n_;
        const u32 peers = __match_any_sync(ALL_LANES, there ? digit(k) : static_cast<u32>(DIGITS));
        const u32 leader = static_cast<u32>(__ffs(static_cast<int>(peers))) - 1;
        u32 before = 0;
        if (there && lane() == leader) {
            before = mine_[digit(k)];
            mine_[digit(k)] = before + static_cast<u32>(__popc(peers));
        }
        __syncwarp();
        before = __shfl_sync(ALL_LANES, before, leader);
        return before + static_cast<u32>(__popc(peers & ((1U << lane()) - 1)));
    }

    u64 first_;
    u64 n_;
    u32 shift_;
    Counts mine_;
    u64 keys_[EACH];
    u32 ranks_[EACH];
};

static_assert(THREADS == DIGITS, "a thread a digit");

// counts[digit * tiles + tile] = keys of the tile with this digit, the bits from `shift` on. Reads 8 bytes a
// key.
ZENC_DEVICE void digit_counts(const u64* keys, i64 n, i64 shift, u64* counts) {
    ZENC_SHARED(u32, of_warps, WARPS * DIGITS);
    const u64 tiles = ceil_divide(static_cast<u64>(n), SORT_TILE);
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const DigitTile counted(keys, static_cast<u64>(n), tile, shift, of_warps);
        u64 sum = 0;
        for (u32 warp = 0; warp < WARPS; ++warp) sum += of_warps[warp * DIGITS + threadIdx.x];
        counts[threadIdx.x * tiles + tile] = sum;
        __syncthreads();
    }
}

// out = keys, stably sorted by this digit. `starts` are the counts, scanned. Reads and writes 8 bytes a key.
ZENC_DEVICE void sort_by_digit(const u64* keys, i64 n, i64 shift, const u64* starts, u64* out) {
    ZENC_SHARED(u32, of_warps, WARPS * DIGITS);
    ZENC_SHARED(u64, of_digits, DIGITS);
    const u64 tiles = ceil_divide(static_cast<u64>(n), SORT_TILE);
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const DigitTile ranked(keys, static_cast<u64>(n), tile, shift, of_warps);
        of_digits[threadIdx.x] = starts[threadIdx.x * tiles + tile];
        u32 sum = 0;
        for (u32 warp = 0; warp < WARPS; ++warp) {
            u32& count = of_warps[warp * DIGITS + threadIdx.x];
            const u32 own = count;
            count = sum;
            sum += own;
        }
        __syncthreads();
        const u32* const mine = of_warps + threadIdx.x / WARP * DIGITS;
        ranked.for_each(
            [&](u64 key, u32 digit, u32 rank) { out[of_digits[digit] + mine[digit] + rank] = key; });
        __syncthreads();
    }
}

// starts[row] = the place of a row's first key among n sorted keys, and starts[distinct] = n. The rows of
// more than MOST_INPUTS keys are listed in `popular`, in any order. Reads 8 bytes a key, writes 8 a row.
ZENC_DEVICE void row_starts(const u64* keys, i64 n, i64 shift, u64* starts, u64* popular) {
    const u64 end = static_cast<u64>(n);
    for (u64 i = thread_of_row(); i < end; i += threads_of_row()) {
        const u64 row = keys[i] >> shift;
        if (i + 1 == end) starts[row + 1] = end;
        if (i != 0 && keys[i - 1] >> shift == row) continue;
        starts[row] = i;
        if (i + MOST_INPUTS < end && keys[i + MOST_INPUTS] >> shift == row)
            popular[1 + atomicAdd(popular, 1ULL)] = row;
    }
}

// Placing the rows of units that come several times: each is the sum of its inputs in their order, added in
// the type that sums are made in and rounded once, as on the CPU; no atomics. A row that comes once is
// copied.

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
    ZENC_DEVICE SummedInputs(const u64* keys_, i64 shift, const T* values_, u64 width_, i64 divisor_)
        : keys(keys_),
          positions(low_mask(static_cast<u64>(shift))),
          values(values_),
          width(width_),
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
ZENC_DEVICE void place_summed(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots,
                              const T* values, i64 divisor, const u64* sorted, i64 shift, const u64* starts,
                              const u64* distinct_) {
    const Places<Mapping> places{geometry, parts};
    const SummedInputs<T> inputs(sorted, shift, values, geometry.width, divisor);
    const u64 distinct = *distinct_;
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
ZENC_DEVICE void place_popular(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots,
                               const T* values, i64 divisor, const u64* keys, i64 shift, const u64* starts,
                               const u64* popular) {
    const Places<Mapping> places{geometry, parts};
    const SummedInputs<T> inputs(keys, shift, values, geometry.width, divisor);
    for (u64 i = blockIdx.x; i < popular[0]; i += gridDim.x) {
        const u64 row = popular[1 + i];
        T* const to = row_address(places, slots, inputs, row, starts[row]);
        for_each_range(inputs.width, [&](u64 column, u64 columns) {
            sum_by_block(inputs, starts[row], starts[row + 1] - starts[row], column, columns, to);
        });
    }
}

}  // namespace zenc
