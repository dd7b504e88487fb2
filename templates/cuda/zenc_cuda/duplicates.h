// Units that come several times: their inputs in the order of their rows, and the sums of these.
#pragma once

#include "zenc_cuda/pack.h"

namespace zenc {

// Inputs in the order of their rows, for units that come several times. A key is row << shift | position in
// the input; a stable sort by the digits of the row, least significant digits first, leaves the inputs of a
// row in their order. A pass over one digit is three launches: digit_counts, scan, sort_by_digit.

// Ranks of parts are slices of one array that begins at 0: so rows are counted over all parts.
template <class Mapping, class Key>
ZENC_DEVICE void make_keys(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots, u64 n,
                           u64 shift, Key* keys) {
#pragma unroll 2
    for (u64 i = thread_of_row(); i < n; i += threads_of_row()) {
        const u64 slot = static_cast<u64>(slots[i]), part = geometry.part_of(slot);
        const u64 local = slot - geometry.first_slot(part);
        const u64 *const bitmap = parts[part].bitmap, *const ranks = parts[part].ranks;
        const u64 row =
            set_below(bitmap, ranks, local / 64) + population(bitmap[local / 64] & low_mask(local % 64));
        keys[i] = static_cast<Key>(row << shift | i);
    }
}

static_assert(THREADS == DIGITS, "a thread a digit");

// A block's keys; each warp has a run of them.
template <class Key>
class DigitTile {
public:
    // Counts keys [n] by the digit from bit `shift` on; `counts` [WARPS][DIGITS] are in shared memory.
    ZENC_DEVICE DigitTile(const Key* keys, u64 n, u64 shift, u32* counts)
        : keys_(keys), shift_(static_cast<u32>(shift)), mine_(counts + threadIdx.x / WARP * DIGITS) {
        const u64 share = ceil_divide(n, THREADS) * WARP;
        first_ = threadIdx.x / WARP * share + lane();
        end_ = first_ - lane() + share < n ? first_ - lane() + share : n;
        for (u32 digit = lane(); digit < DIGITS; digit += WARP) mine_[digit] = 0;
        __syncwarp();
#pragma unroll 4
        for (u64 i = first_; i < end_; i += WARP) atomicAdd(mine_ + digit_of(keys_[i]), 1U);
        __syncthreads();
    }

    // Calls visit(key, digit, number) for all keys. Numbers begin with the counts, which by now are those of
    // the first keys of each digit. Lanes with the same digit find each other.
    template <class Visit>
    ZENC_DEVICE void for_each(Visit visit) const {
        Key next = load(first_);
        for (u64 i = first_; i - lane() < end_; i += WARP) {
            const Key key = next;
            next = load(i + WARP);
            const u32 digit = i < end_ ? digit_of(key) : static_cast<u32>(DIGITS);
            const u32 peers = __match_any_sync(ALL_LANES, digit);
            const u32 before = static_cast<u32>(__popc(peers & ((1U << lane()) - 1)));
            const u32 number = i < end_ ? mine_[digit] : 0;
            __syncwarp();
            if (i < end_ && before == 0) mine_[digit] = number + static_cast<u32>(__popc(peers));
            __syncwarp();
            if (i < end_) visit(key, digit, number + before);
        }
    }

private:
    ZENC_DEVICE Key load(u64 i) const { return i < end_ ? keys_[i] : 0; }
    ZENC_DEVICE u32 digit_of(Key key) const { return static_cast<u32>(key >> shift_) % DIGITS; }

    const Key* keys_;
    u32 shift_;
    u32* mine_;
    u64 first_;
    u64 end_;
};

// Replaces the counts of this thread's digit by the sums over the warps before. Returns the sum over all.
ZENC_DEVICE u32 sum_over_warps(u32* counts) {
    u32 sum = 0;
    for (u32 warp = 0; warp < WARPS; ++warp) {
        u32& count = counts[warp * DIGITS + threadIdx.x];
        const u32 own = count;
        count = sum;
        sum += own;
    }
    return sum;
}

// The number of keys in a tile, of n in all.
ZENC_DEVICE u64 keys_of_tile(u64 n, u64 tile) {
    return n - tile * SORT_TILE < SORT_TILE ? n - tile * SORT_TILE : SORT_TILE;
}

// counts[digit * tiles + tile] = keys of the tile with this digit, the bits from `shift` on.
ZENC_DEVICE void digit_counts(const u64* keys, u64 n, u64 shift, u64* counts) {
    ZENC_SHARED(u32, of_warps, WARPS * DIGITS);
    const u64 tiles = ceil_divide(n, SORT_TILE);
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const DigitTile<u64> counted(keys + tile * SORT_TILE, keys_of_tile(n, tile), shift, of_warps);
        counts[threadIdx.x * tiles + tile] = sum_over_warps(of_warps);
        __syncthreads();
    }
}

// out = keys, stably sorted by this digit. `starts` are the counts, scanned.
ZENC_DEVICE void sort_by_digit(const u64* keys, u64 n, u64 shift, const u64* starts, u64* out) {
    ZENC_SHARED(u32, of_warps, WARPS * DIGITS);
    ZENC_SHARED(u64, of_digits, DIGITS);
    const u64 tiles = ceil_divide(n, SORT_TILE);
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const DigitTile<u64> counted(keys + tile * SORT_TILE, keys_of_tile(n, tile), shift, of_warps);
        of_digits[threadIdx.x] = starts[threadIdx.x * tiles + tile];
        sum_over_warps(of_warps);
        __syncthreads();
        counted.for_each([&](u64 key, u32 digit, u32 number) { out[of_digits[digit] + number] = key; });
        __syncthreads();
    }
}

// starts[row] = the place of a row's first key among n sorted keys, and starts[distinct] = n. The rows of
// more than MOST_INPUTS keys are listed in `popular`, in any order.
template <class Key>
ZENC_DEVICE void row_starts(const Key* keys, u64 n, u64 shift, u64* starts, u64* popular) {
    for (u64 i = thread_of_row(); i < n; i += threads_of_row()) {
        const u64 row = keys[i] >> shift;
        if (i + 1 == n) starts[row + 1] = n;
        if (i != 0 && keys[i - 1] >> shift == row) continue;
        starts[row] = i;
        if (i + MOST_INPUTS < n && keys[i + MOST_INPUTS] >> shift == row)
            popular[1 + atomicAdd(popular, 1ULL)] = row;
    }
}

// to = from, stably sorted by the block by the digit from bit `shift` on.
ZENC_DEVICE void sort_in_block(const u32* from, u64 n, u64 shift, u32* counts, u32* to) {
    const DigitTile<u32> counted(from, n, shift, counts);
    const u32 before = static_cast<u32>(sum_of_threads_before(sum_over_warps(counts)));
    for (u32 warp = 0; warp < WARPS; ++warp) counts[warp * DIGITS + threadIdx.x] += before;
    __syncthreads();
    counted.for_each([&](u32 key, u32, u32 number) { to[number] = key; });
    __syncthreads();
}

// Groups at most FEW_INPUTS inputs by one block: a key has 32 bits here, and its row two digits.
template <class Mapping>
ZENC_DEVICE void group_few(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots, u64 n,
                           u64 shift, u64* sorted, u64* starts, u64* popular) {
    ZENC_SHARED(u32, keys, FEW_INPUTS);
    ZENC_SHARED(u32, counts, WARPS * DIGITS);
    u32* const half_sorted = reinterpret_cast<u32*>(sorted);
    make_keys(geometry, parts, slots, n, shift, keys);
    if (threadIdx.x == 0) popular[0] = 0;
    __syncthreads();
    sort_in_block(keys, n, shift, counts, half_sorted);
    sort_in_block(half_sorted, n, shift + DIGIT_BITS, counts, keys);
    row_starts(keys, n, shift, starts, popular);
    for (u64 i = threadIdx.x; i < n; i += THREADS) sorted[i] = keys[i];
}

static_assert(FEW_INPUTS <= 1 << 2 * DIGIT_BITS, "a row and a position have 32 bits");

// Placing the rows of units that come several times: each is the sum of its inputs in their order, added in
// the type that sums are made in and rounded once, as on the CPU; no atomics. A row that comes once is
// copied.

// The inputs of all rows in the order of their sorted keys, in which those of a row follow each other.
template <class T>
struct SummedInputs {
    using Sum = typename Arithmetic<T>::Sum;

    Arithmetic<T> by;
    const u64* keys;
    u64 positions;
    const T* values;
    u64 width;
    Sum divisor;

    // A position has the lowest `shift` bits of a key.
    ZENC_DEVICE SummedInputs(const u64* keys_, u64 shift, const T* values_, u64 width_, i64 dtype,
                             i64 divisor_)
        : by(dtype),
          keys(keys_),
          positions(low_mask(shift)),
          values(values_),
          width(width_),
          divisor(static_cast<Sum>(divisor_)) {}

    ZENC_DEVICE u64 position(u64 key) const { return keys[key] & positions; }
    ZENC_DEVICE T load(u64 key, u64 column) const { return values[position(key) * width + column]; }

    ZENC_DEVICE Sum widen(T value) const {
        const Sum wide = by.widen(value);
        return divisor == 1 ? wide : wide / divisor;
    }

    // The sum of n inputs (n >= 1) in one column.
    ZENC_DEVICE T sum(u64 first, u64 n, u64 column) const {
        if (n == 1 && divisor == 1) return load(first, column);
        Sum sum = 0;
        for (u64 at = 0; at < n; at += AHEAD) {
            T loaded[AHEAD];
            for (u32 k = 0; k < AHEAD; ++k)
                if (at + k < n) loaded[k] = load(first + at + k, column);
            for (u32 k = 0; k < AHEAD; ++k)
                if (at + k < n) sum = at + k == 0 ? widen(loaded[k]) : sum + widen(loaded[k]);
        }
        return by.round(sum);
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

// The sum of n inputs in some columns, by the block: all threads load, and those of the first input add what
// the others have loaded. The next inputs are under way meanwhile.
template <class T>
ZENC_DEVICE void sum_by_block(const SummedInputs<T>& inputs, u64 first, u64 n, u64 column, u64 columns,
                              T* to) {
    using Sum = typename Arithmetic<T>::Sum;
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
    if (mine && threads.number() == 0) to[column + threads.column()] = inputs.by.round(sum);
}

// Places the `distinct` rows, given sorted keys and where those of each row begin. `slots` are the inputs'.
template <class T, class Mapping>
ZENC_DEVICE void place_summed(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots,
                              const T* values, i64 dtype, i64 divisor, const u64* sorted, u64 shift,
                              const u64* starts, const u64* distinct_, const u64* popular) {
    const SummedInputs<T> inputs(sorted, shift, values, geometry.width, dtype, divisor);
    const auto row_at = [&](u64 key) {
        const u64 slot = static_cast<u64>(slots[inputs.position(key)]);
        return row_of_slot<T>(geometry, parts, slot, geometry.width * sizeof(T));
    };
    const u64 distinct = *distinct_;
    for (u64 i = blockIdx.x; distinct != 0 && i < popular[0]; i += gridDim.x) {  // these take longest
        const u64 row = popular[1 + i];
        T* const to = row_at(starts[row]);
        for_each_range(inputs.width, [&](u64 column, u64 columns) {
            sum_by_block(inputs, starts[row], starts[row + 1] - starts[row], column, columns, to);
        });
    }
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
            addresses[threadIdx.x] = row_at(starts[row]);
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

}  // namespace zenc
