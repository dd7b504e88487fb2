// Inputs in the order of their rows, for units that come several times. A key is row << shift | position in
// the input; a stable sort by the digits of the row, least significant digits first, leaves the inputs of a
// row in their order. A pass over one digit is three launches: digit_counts, scan_numbers, sort_by_digit.
#pragma once

#include "zenc/work.h"
#include "zenc_cuda/pack/row_places.h"

namespace zenc {

// Reads 8 bytes of slots, one or two words of the bitmap and one of ranks an input; writes 8.
template <class Mapping>
ZENC_DEVICE void make_keys(const Places<Mapping>& places, const i64* slots, i64 n, i64 shift, u64* keys) {
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

}  // namespace zenc
