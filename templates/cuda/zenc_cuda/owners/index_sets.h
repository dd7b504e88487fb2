// The index sets of all ranks, under `balanced by holders`, read where they lie: a block takes a tile of all
// of them to shared memory, of encoded ones from their index. So a call has no bitmap a rank, nor any list of
// units: every kernel finds out anew who holds what, and from that who owns it
// (docs/adr/0026-memory-of-a-call.md).
//
// Every launch reads all sets: the bitmap of those that have one; else the index, and some words more for
// each tile, to find its first entry.
#pragma once

#include "zenc_cuda/codec/index_reader.h"

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

// 64-bit words that atomics of 32 bits change.
class Halves {
public:
    ZENC_DEVICE explicit Halves(u32* halves) : halves_(halves) {}

    ZENC_DEVICE u64 get(u64 i) const { return static_cast<u64>(halves_[2 * i + 1]) << 32 | halves_[2 * i]; }

    ZENC_DEVICE void put(u64 i, u64 word) const {
        halves_[2 * i] = static_cast<u32>(word);
        halves_[2 * i + 1] = static_cast<u32>(word >> 32);
    }

    ZENC_DEVICE void set(u64 bit) const { atomicOr(halves_ + bit / 32, 1U << (bit % 32)); }
    ZENC_DEVICE Halves from(u64 i) const { return Halves(halves_ + 2 * i); }

private:
    u32* halves_;
};

// The words of an encoded set from `first` on; they are 0 before.
struct ReadWords {
    const Segment& set;
    u64 first;
    u64 words;
    Halves to;

    template <class Entries>
    ZENC_DEVICE void operator()(const Entries& entries) const {
        const u64 start = 64 * first, left = set.slots - start;
        entries.visit_window(start, start + (left < 64 * words ? left : 64 * words),
                             [&](u64 unit) { to.set(unit - start); });
        __syncwarp();
        for (u64 w = lane(); entries.absent() && w < words; w += WARP)
            to.put(w, ~to.get(w) & low_mask(left - 64 * w));
    }
};

// How many units an encoded set has before word `first`.
struct CountBefore {
    u64 first;

    template <class Entries>
    ZENC_DEVICE u64 operator()(const Entries& entries) const {
        const u64 listed = entries.visit_window(64 * first, 64 * first, [](u64) {});
        return entries.absent() ? 64 * first - listed : listed;
    }
};

// The words of a set from `first` on, by a warp.
ZENC_DEVICE void load_words(const Segment& set, u64 first, u64 words, Halves to) {
    const bool listed = set.bitmap == nullptr;
    for (u64 w = lane(); w < words; w += WARP) to.put(w, listed ? 0 : set.bitmap[first + w]);
    if (!listed || (set.status != nullptr && *set.status != 0)) return;
    __syncwarp();
    with_entries(set, ReadWords{set, first, words, to});
}

// How many units a set has before word `first`, by a warp.
ZENC_DEVICE u64 units_before(const Segment& set, u64 first) {
    if (set.bitmap != nullptr) return Slots(set).below(first);
    if (set.status != nullptr && *set.status != 0) return 0;
    return with_entries(set, CountBefore{first});
}

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
    ZENC_DEVICE static Halves words_of_block(const IndexSets& sets) {
        ZENC_SHARED(u32, near, 2 * SET_WORDS);
        return Halves(sets.far == nullptr ? &near[0] : reinterpret_cast<u32*>(far_of_block(sets)));
    }

    ZENC_DEVICE static u16* below_of_block(const IndexSets& sets) {
        ZENC_SHARED(u16, near, SET_WORDS);
        return sets.far == nullptr ? &near[0] : reinterpret_cast<u16*>(far_of_block(sets) + sets.ranks);
    }

    ZENC_DEVICE static u64* far_of_block(const IndexSets& sets) {
        return sets.far + blockIdx.x * far_words(sets.ranks);
    }

    ZENC_DEVICE u64 word(u64 k, u64 of) const { return words_.get(k * sets_.words + of); }

    // A warp a set, or a piece of one where there are fewer sets than warps.
    ZENC_DEVICE void load() const {
        const u64 pieces = ceil_divide(WARPS, sets_.ranks), each = ceil_divide(words, pieces);
        for (u64 i = threadIdx.x / WARP; i < pieces * sets_.ranks; i += WARPS) {
            const u64 k = i / pieces, from = i % pieces * each;
            if (from >= words) continue;
            load_words(sets_.sets[k], first + from, words - from < each ? words - from : each,
                       words_.from(k * sets_.words + from));
        }
    }

    ZENC_DEVICE void give_to_owners() const {
        for (u64 k = 0; several != 0 && k < sets_.ranks; ++k)
            words_.put(k * sets_.words + at, word(k) & ~several);
        const u16* owner = sets_.owners + first_several;
        for_each_bit(several, [&](u64 bit) {
            const u64 k = *owner++;
            words_.put(k * sets_.words + at, word(k) | 1ULL << bit);
        });
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
    const Halves words_;
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
