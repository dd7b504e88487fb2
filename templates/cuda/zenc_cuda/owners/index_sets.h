// The index sets of all ranks, under `balanced by holders`: a block takes a tile of all their bitmaps to
// shared memory. So a call has no list of units: every kernel finds out anew who holds what, and from that
// who owns it (docs/adr/0026-memory-of-a-call.md). Every launch reads all bitmaps.
#pragma once

#include "zenc_cuda/primitives/row_batches.h"

namespace zenc {

// What is known of the units that ranks hold. Of one holder they are its own. Those of several are numbered,
// ascending.
struct IndexSets {
    const Segment* sets;  // [ranks], over all units
    u64 ranks;
    u64 words;           // of a tile, words_of_tile
    u64* far;            // [blocks, far_words], or null
    const u64* several;  // [tiles + 1]: units of several holders before each tile
    const u16* owners;   // of these units
    const u64* starts;   // [ranks, tiles]: units of each owner before each tile, and all of earlier owners

    ZENC_DEVICE u64 units() const { return sets->slots; }
    ZENC_DEVICE u64 tiles() const { return ceil_divide(words_of(units()), words); }
};

// The sum of n over the threads of the block before this one. Threads meet before they call it again.
ZENC_DEVICE u64 sum_of_threads_before(u64 n) {
    ZENC_SHARED(u32, sums, WARPS);
    const u32 mine = static_cast<u32>(n), up_to = inclusive_in_warp(mine);
    if (lane() == WARP - 1) sums[threadIdx.x / WARP] = up_to;
    __syncthreads();
    u32 sum = up_to - mine;
    for (u32 warp = 0; warp < threadIdx.x / WARP; ++warp) sum += sums[warp];
    return sum;
}

// A tile of all sets. Each thread has one word of it at most, `at`: lanes of a warp words that follow each
// other, and all warps about as many.
class SetTile {
public:
    u64 number;
    u64 first;          // word of the sets
    u64 words;          // of each set: fewer at the end
    u64 begin;          // the word of lane 0
    u64 at;             // that of this thread
    bool there;         // whether it has one
    u64 any = 0;        // units of it that somebody holds
    u64 several = 0;    // those of several holders
    u64 first_several;  // the number of the first of them; from own() on

    // Threads have met; before the next tile they meet again.
    ZENC_DEVICE SetTile(const IndexSets& sets, u64 number_)
        : number(number_),
          first(number_ * sets.words),
          words(words_of(sets.units()) - first < sets.words ? words_of(sets.units()) - first : sets.words),
          begin(threadIdx.x / WARP * ceil_divide(sets.words, WARPS)),
          at(begin + lane()),
          there(lane() < ceil_divide(sets.words, WARPS) && at < words),
          first_several(0),
          sets_(sets),
          words_(words_of_block(sets)),
          below_(below_of_block(sets)) {
        load();
        __syncthreads();
        for (u64 k = 0; there && k < sets.ranks; ++k) {
            const u64 mine = word(k);
            several |= any & mine;
            any |= mine;
        }
    }

    // What rank k holds of this thread's word; from own() on what it owns.
    ZENC_DEVICE u64 word(u64 k) const { return word(k, at); }

    // From here on each unit is with its owner alone. Threads have met.
    ZENC_DEVICE void own() {
        first_several = sets_.several[number] + sum_of_threads_before(population(several));
        if (there) give_to_owners();
        __syncthreads();
        for (u64 k = threadIdx.x / WARP; k < sets_.ranks; k += WARPS) count_below(k);
        __syncthreads();
    }

    // How many units of the tile rank k owns.
    ZENC_DEVICE u64 owned(u64 k) const {
        return below_[k * sets_.words + words - 1] + population(word(k, words - 1));
    }

    // Who owns a unit that somebody holds.
    ZENC_DEVICE u64 owner(u64 of, u64 bit) const {
        u64 k = 0;
        while (k + 1 < sets_.ranks && (word(k, of) >> bit & 1) == 0) ++k;
        return k;
    }

    // Which slot of its part that is.
    ZENC_DEVICE u64 slot(u64 k, u64 of, u64 bit) const {
        return before(k, of) + population(word(k, of) & low_mask(bit));
    }

    // How many units somebody holds before the warp's words, by the warp.
    ZENC_DEVICE u64 rows_before() const {
        u64 rows = 0;
        for (u64 k = lane(); begin < words && k < sets_.ranks; k += WARP) rows += before(k, begin);
        return sum_of_warp(rows);
    }

private:
    ZENC_DEVICE static u64* words_of_block(const IndexSets& sets) {
        ZENC_SHARED(u64, near, SET_WORDS);
        return sets.far == nullptr ? &near[0] : far_of_block(sets);
    }

    ZENC_DEVICE static u16* below_of_block(const IndexSets& sets) {
        ZENC_SHARED(u16, near, SET_WORDS);
        return sets.far == nullptr ? &near[0] : reinterpret_cast<u16*>(far_of_block(sets) + sets.ranks);
    }

    ZENC_DEVICE static u64* far_of_block(const IndexSets& sets) {
        return sets.far + blockIdx.x * far_words(sets.ranks);
    }

    ZENC_DEVICE u64 word(u64 k, u64 of) const { return words_[k * sets_.words + of]; }

    ZENC_DEVICE void load() const {
        const u32 each = static_cast<u32>(sets_.words), all = static_cast<u32>(sets_.ranks) * each;
        for (u32 i = threadIdx.x; i < all; i += THREADS)
            if (i % each < words) words_[i] = sets_.sets[i / each].bitmap[first + i % each];
    }

    ZENC_DEVICE void give_to_owners() const {
        for (u64 k = 0; several != 0 && k < sets_.ranks; ++k) words_[k * sets_.words + at] &= ~several;
        const u16* owner = sets_.owners + first_several;
        for_each_bit(several, [&](u64 bit) { words_[*owner++ * sets_.words + at] |= 1ULL << bit; });
    }

    ZENC_DEVICE void count_below(u64 k) const {
        u32 sum = 0;
        for (u64 first_of_lanes = 0; first_of_lanes < words; first_of_lanes += WARP) {
            const u64 w = first_of_lanes + lane();
            const u32 mine = w < words ? static_cast<u32>(population(word(k, w))) : 0;
            const u32 up_to = inclusive_in_warp(mine);
            if (w < words) below_[k * sets_.words + w] = static_cast<u16>(sum + up_to - mine);
            sum += __shfl_sync(ALL_LANES, up_to, WARP - 1);
        }
    }

    // Units that rank k owns before a word of the tile.
    ZENC_DEVICE u64 before(u64 k, u64 of) const {
        const u64* const starts = sets_.starts + k * sets_.tiles();
        return starts[number] - starts[0] + below_[k * sets_.words + of];
    }

    const IndexSets& sets_;
    u64* const words_;
    u16* const below_;
};

// visit(tile) for the tiles of this block.
template <class Visit>
ZENC_DEVICE void for_each_tile(const IndexSets& sets, Visit visit) {
    for (u64 number = blockIdx.x; number < sets.tiles(); number += gridDim.x) {
        SetTile tile(sets, number);
        visit(tile);
        __syncthreads();
    }
}

}  // namespace zenc
