// Which rank sums a unit, under `balanced by holders`: the owners that the CPU's kernel chooses, by the same
// arithmetic (zenc/loads.h). Units of one holder are given to it all at once. The others are few, and each
// choice depends on those before it: one warp makes them, while the other warps of its block look up who
// holds the next units.
//
// `sets` [ranks] are the ranked bitmaps of all ranks over all units. found[0] is their union, found[1] has
// the units that several ranks hold; both are ranked behind find_holders. The units of the union, ascending,
// are numbered, and owners[i] is the owner of number i. In the costs below there are u units, R ranks, h
// holdings (units of a rank, over all ranks), p units of the union and c of several holders.
#pragma once

#include "zenc/loads.h"
#include "zenc_cuda/batches.h"

namespace zenc {

// The number of a unit of the union, or of those of several holders.
ZENC_DEVICE u64 number_of(const Segment& found, u64 unit) {
    return static_cast<u64>(row_of(found, unit / 64, static_cast<u32>(unit % 64)));
}

ZENC_DEVICE u64 first_number(const Segment& found, u64 word) {
    return Slots(found).below(word);
}

// The bitmaps of `found`, and alone[k] = the units that rank k alone holds, which is cleared before. Reads
// each set twice, 2 R u / 8 bytes; writes u / 4.
ZENC_DEVICE void find_holders(const Segment* sets, u64 ranks, const Segment* found, u64* alone) {
    const u64 words = words_of(found->slots);
    for (u64 w = thread_of_row(); w < words; w += threads_of_row()) {
        u64 any = 0, several = 0;
        for (u64 k = 0; k < ranks; ++k) {
            const u64 mine = sets[k].bitmap[w];
            several |= any & mine;
            any |= mine;
        }
        found[0].bitmap[w] = any;
        found[1].bitmap[w] = several;
    }
    for (u64 k = 0; k < ranks; ++k) {
        u64 units = 0;
        for (u64 w = thread_of_row(); w < words; w += threads_of_row())
            units += population(sets[k].bitmap[w] & ~found[1].bitmap[w]);
        units = sum_of_warp(units);
        if (lane() == 0 && units != 0) atomicAdd(alone + k, units);
    }
}

// The owners of the units of one holder, and a list of all others. Reads all sets and 9 u / 32 bytes more;
// writes 2 bytes a unit, or 8 of those in the list.
ZENC_DEVICE void give_alone(const Segment* sets, u64 ranks, const Segment* found, u16* owners, u64* several) {
    const u64 words = words_of(found->slots);
    for (u64 w = thread_of_row(); w < words; w += threads_of_row()) {
        const u64 any = found[0].bitmap[w], shared = found[1].bitmap[w];
        u16* const of_word = owners + first_number(found[0], w);
        for (u64 k = 0; any != shared && k < ranks; ++k)
            for_each_bit(sets[k].bitmap[w] & ~shared,
                         [&](u64 bit) { of_word[population(any & low_mask(bit))] = static_cast<u16>(k); });
        u64* next = several + first_number(found[1], w);
        for_each_bit(shared, [&](u64 bit) { *next++ = 64 * w + bit; });
    }
}

// Who holds the units of a batch: a bit a rank, in words of 32, one unit after another.
constexpr u64 MOST_BATCH = THREADS;
constexpr u64 BATCH_WORDS = 2048;  // more than 65,536 ranks can't own a unit

class HolderBatch {
public:
    ZENC_DEVICE HolderBatch(u32* masks, u64* numbers, u64 ranks)
        : masks_(masks), numbers_(numbers), ranks_(ranks) {}

    ZENC_DEVICE static u64 words(u64 ranks) { return ceil_divide(ranks, WARP); }

    ZENC_DEVICE static u64 units(u64 ranks) {
        const u64 fitting = BATCH_WORDS / words(ranks);
        return fitting < MOST_BATCH ? fitting : MOST_BATCH;
    }

    // Looks up n units, by `warps` warps of which this is number `warp`: a lane a rank.
    ZENC_DEVICE void look_up(const Segment* sets, const Segment& any, const u64* several, u64 n, u32 warp,
                             u32 warps) const {
        for (u64 i = warp; i < n * words(ranks_); i += warps) {
            const u64 unit = several[i / words(ranks_)];
            const u64 rank = i % words(ranks_) * WARP + lane();
            const bool holds = rank < ranks_ && (sets[rank].bitmap[unit / 64] >> unit % 64 & 1) != 0;
            const u32 mask = __ballot_sync(ALL_LANES, holds);
            if (lane() != 0) continue;
            masks_[i] = mask;
            if (i % words(ranks_) == 0) numbers_[i / words(ranks_)] = number_of(any, unit);
        }
    }

    ZENC_DEVICE const u32* holders(u64 i) const { return masks_ + i * words(ranks_); }
    ZENC_DEVICE u64 number(u64 i) const { return numbers_[i]; }

private:
    u32* masks_;
    u64* numbers_;
    u64 ranks_;
};

// The holder that owns a unit at the least cost, the first of equals; every lane says it, and adds to its
// own loads, those of every 32nd rank. `holders` are in words of 32 ranks.
ZENC_DEVICE u64 own_by_cheapest(const u32* holders, u64 ranks, Load* loads) {
    const u64 words = HolderBatch::words(ranks);
    u64 count = 0;
    for (u64 j = 0; j < words; ++j) count += static_cast<u64>(__popc(holders[j]));
    const Cost cost(ranks, count);
    bool has = false;
    i64 least = 0;
    u64 best = 0;
    for (u64 j = 0; j < words; ++j) {
        if ((holders[j] >> lane() & 1) == 0) continue;
        const i64 mine = cost.of(loads[j * WARP + lane()]);
        if (has && mine >= least) continue;
        has = true;
        least = mine;
        best = j * WARP + lane();
    }
    u32 others = __ballot_sync(ALL_LANES, has);
    const i64 my_least = least;
    const u64 my_best = best;
    for (bool first = true; others != 0; others &= others - 1, first = false) {
        const int from = __ffs(static_cast<int>(others)) - 1;
        const i64 other = __shfl_sync(ALL_LANES, my_least, from);
        const u64 rank = __shfl_sync(ALL_LANES, my_best, from);
        if (!first && (other > least || (other == least && rank > best))) continue;
        least = other;
        best = rank;
    }
    if (best % WARP == lane()) loads[best].own(ranks, 1, count);
    return best;
}

// What is known of a rank before anything is chosen: what it holds, and what it alone can own.
ZENC_DEVICE Load given_load(const Segment& set, u64 ranks, u64 alone) {
    Load load{};
    load.hold(Slots(set).below(words_of(set.slots)));
    load.own(ranks, alone, 1);
    return load;
}

constexpr u64 NEAR_LOADS = 512;  // more are in memory

// The owners of the units in the list `several`, by the first block of the grid; counts [ranks]: how many
// units each rank owns. `far_loads` [ranks] is room for loads. Reads 8 c + 32 R c bytes, writes 2 c.
ZENC_DEVICE void choose_owners(const Segment* sets, u64 ranks, const Segment* found, const u64* several,
                               const u64* alone, Load* far_loads, u16* owners, u64* counts) {
    ZENC_SHARED(Load, near_loads, NEAR_LOADS);
    ZENC_SHARED(u32, masks, 2 * BATCH_WORDS);
    ZENC_SHARED(u64, numbers, 2 * MOST_BATCH);
    if (blockIdx.x != 0 || blockIdx.y != 0) return;
    Load* const loads = ranks <= NEAR_LOADS ? &near_loads[0] : far_loads;
    for (u64 k = threadIdx.x; k < ranks; k += THREADS) loads[k] = given_load(sets[k], ranks, alone[k]);
    const u64 all = first_number(found[1], words_of(found->slots)), together = HolderBatch::units(ranks);
    const u32 warp = threadIdx.x / WARP;
    const auto number_in = [&](u64 first) { return all - first < together ? all - first : together; };
    const auto batch = [&](u64 first) {
        const u64 half = first / together % 2;
        return HolderBatch(&masks[0] + half * BATCH_WORDS, &numbers[0] + half * MOST_BATCH, ranks);
    };
    if (all != 0) batch(0).look_up(sets, found[0], several, number_in(0), warp, THREADS / WARP);
    for (u64 first = 0; first < all; first += together) {
        __syncthreads();
        const u64 next = first + together;
        if (warp != 0 && next < all)
            batch(next).look_up(sets, found[0], several + next, number_in(next), warp - 1,
                                THREADS / WARP - 1);
        if (warp != 0) continue;
        const HolderBatch mine = batch(first);
        for (u64 i = 0; i < number_in(first); ++i) {
            const u64 owner = own_by_cheapest(mine.holders(i), ranks, loads);
            if (lane() == 0) owners[mine.number(i)] = static_cast<u16>(owner);
        }
    }
    __syncthreads();
    for (u64 k = threadIdx.x; k < ranks; k += THREADS) counts[k] = static_cast<u64>(loads[k].owned);
}

// Adds the digest of all owners to `digest`, which is cleared before. Reads 9 u / 64 bytes, and 2 p.
ZENC_DEVICE void digest_owners(const Segment& any, u64 ranks, const u16* owners, u64* digest) {
    u64 sum = thread_of_row() == 0 ? WordDigest::of_ranks(ranks) : 0;
    for (u64 w = thread_of_row(); w < words_of(any.slots); w += threads_of_row()) {
        if (any.bitmap[w] == 0) continue;
        WordDigest of_word(w, any.bitmap[w]);
        const u16* const of = owners + first_number(any, w);
        for (u64 i = 0; i < population(any.bitmap[w]); ++i) of_word.add(of[i]);
        sum += of_word.value();
    }
    sum = sum_of_warp(sum);
    if (lane() == 0 && sum != 0) atomicAdd(digest, sum);
}

constexpr u64 NEAR_COUNTERS = 512;

// counts[k * ranks + p] = units of rank k that rank p owns; cleared before. Row k of the grid counts those of
// rank k. Reads 17 R u / 64 bytes, and 2 for each holding.
ZENC_DEVICE void count_parts(const Segment* sets, u64 ranks, const Segment& any, const u16* owners,
                             u64* counts) {
    ZENC_SHARED(u32, near, NEAR_COUNTERS);
    const u64 counters = ranks < NEAR_COUNTERS ? ranks : NEAR_COUNTERS;
    for_each_segment(static_cast<i64>(ranks), [&](u64 k) {
        u64* const of_rank = counts + k * ranks;
        for (u64 p = threadIdx.x; p < counters; p += THREADS) near[p] = 0;
        __syncthreads();
        for (u64 w = thread_of_row(); w < words_of(any.slots); w += threads_of_row()) {
            if (sets[k].bitmap[w] == 0) continue;
            const u16* const of_word = owners + first_number(any, w);
            for_each_bit(sets[k].bitmap[w], [&](u64 bit) {
                const u64 owner = of_word[population(any.bitmap[w] & low_mask(bit))];
                if (owner < counters)
                    atomicAdd(&near[0] + owner, 1U);
                else
                    atomicAdd(of_rank + owner, 1ULL);
            });
        }
        __syncthreads();
        for (u64 p = threadIdx.x; p < counters; p += THREADS)
            if (near[p] != 0) atomicAdd(of_rank + p, static_cast<u64>(near[p]));
        __syncthreads();
    });
}

}  // namespace zenc
