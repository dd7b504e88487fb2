// Prefix sums, and the ranks of bitmaps.
#pragma once

#include "zenc/launch.h"
#include "zenc_cuda/platform.h"

namespace zenc {

// Prefix sums in one pass: a tile adds what the tiles before it have published ("decoupled look-back",
// Merrill and Garland, NVIDIA NVR-2016-002). Blocks draw their tiles from a counter, so that those before one
// are always being worked on, whatever order blocks start in.

template <class Sum>
ZENC_DEVICE Sum inclusive_in_warp(Sum value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const Sum other = __shfl_up_sync(ALL_LANES, value, step);
        if (lane() >= step) value += other;
    }
    return value;
}

// The sum of n over the threads of the block before this one. Threads meet before they call it again.
template <class Sum = u32>
ZENC_DEVICE u64 sum_of_threads_before(u64 n) {
    ZENC_SHARED(Sum, sums, WARPS);
    const Sum mine = static_cast<Sum>(n), up_to = inclusive_in_warp(mine);
    if (lane() == WARP - 1) sums[threadIdx.x / WARP] = up_to;
    __syncthreads();
    Sum sum = up_to - mine;
#pragma unroll 1
    for (u32 warp = 0; warp < threadIdx.x / WARP; ++warp) sum += sums[warp];
    return sum;
}

// The state of a tile, in one word, so that no fence is needed: its own sum is known, or that up to it.
enum TileState : u64 { NOTHING = 0, OWN = 1, ALL = 2 };

ZENC_DEVICE void publish(u64* state, u64 sum, TileState what) {
    if (lane() == 0) store_relaxed(state, sum << 2 | what);
}

// The state of the tile that is `distance` before `tile`, once it has one. Before the first there is nothing.
ZENC_DEVICE u64 state_before(const u64* states, u64 tile, u64 distance) {
    if (distance > tile) return ALL;
    u64 state;
    while ((state = load_relaxed(states + tile - distance)) == NOTHING) __nanosleep(20);
    return state;
}

// Publishes the sum of a tile and returns that of all tiles before it. A warp looks at 32 of them at a time.
ZENC_DEVICE u64 sum_before(u64* states, u64 tile, u64 own) {
    if (tile != 0) publish(states + tile, own, OWN);
    u64 sum = 0;
    for (u64 distance = 1 + lane();; distance += WARP) {
        const u64 state = state_before(states, tile, distance);
        __syncwarp();
        const u32 all = __ballot_sync(ALL_LANES, state % 4 == ALL);
        const bool counts = all == 0 || lane() < static_cast<u32>(__ffs(static_cast<int>(all)));
        sum += sum_of_warp(counts ? state >> 2 : 0);
        if (all != 0) break;
    }
    publish(states + tile, sum + own, ALL);
    return sum;
}

// A number that all threads of the block get. Threads may not call it again before they have met.
ZENC_DEVICE u64 draw_tile(u64* counter) {
    ZENC_SHARED(u64, drawn, 1);
    if (threadIdx.x == 0) *drawn = atomicAdd(counter, 1ULL);
    __syncthreads();
    return *drawn;
}

// The sum of the block's warps before this one, and all of it behind; `own` is the sum of this warp.
ZENC_DEVICE u64 sum_of_warps_before(u64 own, u64* states, u64 tile) {
    ZENC_SHARED(u64, sums, WARPS + 1);
    if (lane() == 0) sums[threadIdx.x / WARP] = own;
    __syncthreads();
    if (threadIdx.x < WARP) {
        const u64 mine = lane() < WARPS ? sums[lane()] : 0;
        const u64 up_to = inclusive_in_warp(mine);
        const u64 before = sum_before(states, tile, __shfl_sync(ALL_LANES, up_to, WARP - 1));
        if (lane() < WARPS) sums[lane()] = before + up_to - mine;
    }
    __syncthreads();
    return sums[threadIdx.x / WARP];
}

// numbers[i] becomes the sum of those before it, by all blocks of the row. `work` has scan_words(n) words,
// which are 0 before.
ZENC_DEVICE void scan(u64* numbers, u64 n, u64* work) {
    constexpr u32 EACH = SCAN_TILE / THREADS;
    for (u64 tile; (tile = draw_tile(work)) < ceil_divide(n, SCAN_TILE);) {
        const u64 first = tile * SCAN_TILE + threadIdx.x * EACH;
        u64 own[EACH], sum = 0;
        for (u32 k = 0; k < EACH; ++k) sum += own[k] = first + k < n ? numbers[first + k] : 0;
        const u64 up_to = inclusive_in_warp(sum);
        u64 before =
            sum_of_warps_before(__shfl_sync(ALL_LANES, up_to, WARP - 1), work + 1, tile) + up_to - sum;
        for (u32 k = 0; k < EACH; before += own[k++])
            if (first + k < n) numbers[first + k] = before;
    }
    __syncthreads();  // the next scan may draw
}

// Waits until all blocks together have done `all` pieces of work, of which this one has done `mine`. Pieces
// are drawn (draw_tile): so each that is waited for is with a block that runs, whatever order blocks start
// in. `done` is 0 before.
ZENC_DEVICE void await_all(u64* done, u64 mine, u64 all) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(done, mine);
        while (load_relaxed(done) < all) __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
}

// Ranks of occupied slots (docs/adr/0004-bitmap-ranking.md).

// Writes word `at` of a bitmap, unless that is null, and its ranks: lanes of a warp have words that follow
// each other from a multiple of RANKED_WORDS on, and so have the warps of a tile, and all tiles; lanes
// without a word are at ~0. Returns how many bits are set before the warp's words.
ZENC_DEVICE u64 store_words(const Segment& to, u64 at, u64 word, u64 tile, u64* states) {
    if (at < words_of(to.slots) && to.bitmap != nullptr) to.bitmap[at] = word;
    const u32 mine = static_cast<u32>(population(word)), up_to = inclusive_in_warp(mine);
    const u64 before = sum_of_warps_before(__shfl_sync(ALL_LANES, up_to, WARP - 1), states, tile);
    u32 more[3];
    for (u32 k = 0; k < 3; ++k) more[k] = __shfl_down_sync(ALL_LANES, up_to - mine, 2 * k + 2) - up_to + mine;
    if (at < words_ranked(to.slots) && at % RANKED_WORDS == 0)
        to.ranks[at / RANKED_WORDS] = made_rank(before + up_to - mine, more[0], more[1], more[2]);
    return before;
}

// The bits that are set in the words that one rank is kept for, below each of them; the last is all of them.
struct RankedWords {
    u64 below[RANKED_WORDS + 1];

    ZENC_DEVICE RankedWords(const Segment& segment, u64 rank) : below{} {
        const u64 words = words_of(segment.slots);
#pragma unroll
        for (u64 i = 0; i < RANKED_WORDS; ++i) {
            const u64 at = rank * RANKED_WORDS + i;
            below[i + 1] = below[i] + (at < words ? population(segment.bitmap[at]) : 0);
        }
    }

    ZENC_DEVICE u64 all() const { return below[RANKED_WORDS]; }
    ZENC_DEVICE u64 rank(u64 before) const { return made_rank(before, below[2], below[4], below[6]); }
};

// A rank a thread, by all blocks that call it, in words that are 0 before: scan_words(words_ranked(slots)) of
// them. Adds to `found` how many bits this thread has found.
ZENC_DEVICE void rank_one(const Segment& segment, u64* work, u64& found) {
    static_assert(SCAN_TILE == RANKED_WORDS * THREADS, "as many tiles as to scan words");
    const u64 kept = ranks_of(segment.slots);
    for (u64 tile; (tile = draw_tile(work)) * THREADS < kept;) {
        const u64 k = tile * THREADS + threadIdx.x;
        const RankedWords words(segment, k);
        const u64 up_to = inclusive_in_warp(words.all());
        found += words.all();
        const u64 before = sum_of_warps_before(__shfl_sync(ALL_LANES, up_to, WARP - 1), work + 1, tile);
        if (k < kept) segment.ranks[k] = words.rank(before + up_to - words.all());
    }
    __syncthreads();  // the next one may draw
}

// The ranks of all segments. Segment i scans in the words from work + i * work_words on.
ZENC_DEVICE void rank(const Segment* segments, u64 n, u64* work, u64 work_words) {
    u64 found = 0;
    for_each_segment(n, [&](u64 i) { rank_one(segments[i], work + i * work_words, found); });
}

// rank for one segment by one block, which needs no words.
ZENC_DEVICE void rank_by_block(const Segment& segment) {
    ZENC_SHARED(u64, up_to, 1);
    const u64 kept = ranks_of(segment.slots);
    u64 before = 0;
#pragma unroll 1
    for (u64 first = 0; first < kept; first += THREADS) {
        const u64 k = first + threadIdx.x;
        const RankedWords words(segment, k);
        before += sum_of_threads_before(words.all());
        if (k < kept) segment.ranks[k] = words.rank(before);
        if (threadIdx.x + 1 == THREADS) *up_to = before + words.all();
        __syncthreads();
        before = *up_to;
    }
    __syncthreads();
}

// Whether this block is the last of `blocks` to come here, and so finds what all of them have written;
// `arrived` is 0 before.
ZENC_DEVICE bool is_last_block(u64* arrived, u64 blocks) {
    ZENC_SHARED(u64, before, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        before[0] = atomicAdd(arrived, 1ULL);
        __threadfence();
    }
    __syncthreads();
    return before[0] + 1 == blocks;
}

}  // namespace zenc
