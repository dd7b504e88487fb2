// The choice of owners under `balanced by holders`: the same as that of the CPU's kernel, by the same
// arithmetic (zenc/loads.h). Units of one holder are given to it all at once. The others are few, and each
// choice depends on those before it: one warp makes them, while the other warps of its block fetch who holds
// the next units.
//
// In the costs below there are R ranks, sets of i bytes each (index_sets.h), t tiles and c units of several
// holders. A mask has a bit a rank, in m = R / 8 bytes.
#pragma once

#include "zenc/loads.h"
#include "zenc_cuda/owners/index_sets.h"

namespace zenc {

// The masks of the units of several holders, how many there are before each tile (`several`), and alone[k] =
// the units that rank k alone holds; these and `work` are cleared before. Reads R i bytes; writes m c + 8 t.
ZENC_DEVICE void find_holders(const IndexSets& sets, u64* work, u8* masks, u64* several, u64* alone) {
    const u64 tiles = sets.tiles(), bytes = mask_bytes(sets.ranks);
    u64 of_lane = 0;  // what the rank of this number holds alone
    for (u64 number; (number = draw_tile(work)) < tiles;) {
        const SetTile tile(sets, number);
        for (u64 k = 0; k < sets.ranks; ++k) {
            const u64 units = sum_of_warp(tile.there ? population(tile.word(k) & ~tile.several) : 0);
            if (lane() == k) of_lane += units;
            if (lane() == 0 && k >= WARP && units != 0) atomicAdd(alone + k, units);
        }
        const u64 mine = population(tile.several), up_to = inclusive_in_warp(mine);
        const u64 before = sum_of_warps_before(__shfl_sync(ALL_LANES, up_to, WARP - 1), work + 1, number);
        if (threadIdx.x == 0) several[number] = before;
        if (number + 1 == tiles && threadIdx.x + 1 == THREADS) several[tiles] = before + up_to;
        u8* mask = masks + (before + up_to - mine) * bytes;
        for_each_bit(tile.several, [&](u64 bit) {
            for (u64 byte = 0; byte < bytes; ++byte) {
                u64 holders = 0;
                for (u64 k = 8 * byte; k < 8 * (byte + 1) && k < sets.ranks; ++k)
                    holders |= (tile.word(k) >> bit & 1) << k % 8;
                *mask++ = static_cast<u8>(holders);
            }
        });
        __syncthreads();
    }
    if (of_lane != 0) atomicAdd(alone + lane(), of_lane);
}

// The masks of some units that follow each other, in words of 32 ranks.
constexpr u64 MOST_BATCH = THREADS;
constexpr u64 BATCH_WORDS = 2048;  // more than 65,536 ranks can't own a unit

class HolderBatch {
public:
    ZENC_DEVICE HolderBatch(u32* masks, u64 ranks) : masks_(masks), ranks_(ranks) {}

    ZENC_DEVICE static u64 words(u64 ranks) { return ceil_divide(ranks, WARP); }

    ZENC_DEVICE static u64 units(u64 ranks) {
        const u64 fitting = BATCH_WORDS / words(ranks);
        return fitting < MOST_BATCH ? fitting : MOST_BATCH;
    }

    // Fetches those of n units, by `warps` warps of which this is number `warp`.
    ZENC_DEVICE void fetch(const u8* masks, u64 n, u32 warp, u32 warps) const {
        const u64 bytes = mask_bytes(ranks_);
        for (u64 i = warp * WARP + lane(); i < n * words(ranks_); i += warps * WARP) {
            const u64 first = i % words(ranks_) * 4;
            const u8* const mask = masks + i / words(ranks_) * bytes + first;
            u32 word = 0;
            for (u64 k = 0; k < 4 && first + k < bytes; ++k) word |= static_cast<u32>(mask[k]) << 8 * k;
            masks_[i] = word;
        }
    }

    ZENC_DEVICE const u32* holders(u64 i) const { return masks_ + i * words(ranks_); }

private:
    u32* masks_;
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
    load.hold(set.count);
    load.own(ranks, alone, 1);
    return load;
}

constexpr u64 NEAR_LOADS = 512;  // more are in memory

// The owners of the units of several holders, by the first block of the grid; counts[k * ranks + k] = how
// many units rank k owns. There are `all` masks; `far_loads` [ranks] is room for loads. Reads m c bytes,
// writes 2 c.
ZENC_DEVICE void choose_owners(const Segment* sets, u64 ranks, const u8* masks, u64 all, const u64* alone,
                               Load* far_loads, u16* owners, u64* counts) {
    ZENC_SHARED(Load, near_loads, NEAR_LOADS);
    ZENC_SHARED(u32, fetched, 2 * BATCH_WORDS);
    if (blockIdx.x != 0 || blockIdx.y != 0) return;
    Load* const loads = ranks <= NEAR_LOADS ? &near_loads[0] : far_loads;
    for (u64 k = threadIdx.x; k < ranks; k += THREADS) loads[k] = given_load(sets[k], ranks, alone[k]);
    const u64 together = HolderBatch::units(ranks);
    const u32 warp = threadIdx.x / WARP;
    const auto number_in = [&](u64 first) { return all - first < together ? all - first : together; };
    const auto batch = [&](u64 first) {
        return HolderBatch(&fetched[0] + first / together % 2 * BATCH_WORDS, ranks);
    };
    if (all != 0) batch(0).fetch(masks, number_in(0), warp, WARPS);
    for (u64 first = 0; first < all; first += together) {
        __syncthreads();
        const u64 next = first + together;
        if (warp != 0 && next < all)
            batch(next).fetch(masks + next * mask_bytes(ranks), number_in(next), warp - 1, WARPS - 1);
        if (warp != 0) continue;
        const HolderBatch mine = batch(first);
        for (u64 i = 0; i < number_in(first); ++i) {
            const u64 owner = own_by_cheapest(mine.holders(i), ranks, loads);
            if (lane() == 0) owners[first + i] = static_cast<u16>(owner);
        }
    }
    __syncthreads();
    for (u64 k = threadIdx.x; k < ranks; k += THREADS)
        counts[k * ranks + k] = static_cast<u64>(loads[k].owned);
}

// Adds the digest of all owners to `digest`, which is cleared before; starts[k * tiles + t] = the units of
// tile t that rank k owns. Reads R i bytes, and 2 c; writes 8 R t.
ZENC_DEVICE void digest_owners(const IndexSets& sets, u64* digest, u64* starts) {
    u64 sum = thread_of_row() == 0 ? WordDigest::of_ranks(sets.ranks) : 0;
    for_each_tile(sets, [&](SetTile& tile) {
        tile.own();
        if (tile.any != 0) {
            WordDigest of_word(tile.first + tile.at, tile.any);
            for_each_bit(tile.any, [&](u64 bit) { of_word.add(tile.owner(tile.at, bit)); });
            sum += of_word.value();
        }
        for (u64 k = threadIdx.x; k < sets.ranks; k += THREADS)
            starts[k * sets.tiles() + tile.number] = tile.owned(k);
    });
    sum = sum_of_warp(sum);
    if (lane() == 0 && sum != 0) atomicAdd(digest, sum);
}

constexpr u64 NEAR_COUNTERS = 512;

// counts[k * ranks + p] = units of rank k that rank p owns, for p other than k; these are cleared before.
// There are `all` masks. Reads (m + 2) c bytes.
ZENC_DEVICE void count_parts(const u8* masks, u64 all, u64 ranks, const u16* owners, u64* counts) {
    ZENC_SHARED(u64, near, NEAR_COUNTERS);
    const u64 counters = ranks * ranks;
    u64* const to = counters <= NEAR_COUNTERS ? &near[0] : counts;
    for (u64 i = threadIdx.x; i < NEAR_COUNTERS; i += THREADS) near[i] = 0;
    __syncthreads();
    for (u64 i = thread_of_row(); i < all; i += threads_of_row())
        for (u64 byte = 0; byte < mask_bytes(ranks); ++byte)
            for_each_bit(masks[i * mask_bytes(ranks) + byte], [&](u64 bit) {
                const u64 rank = 8 * byte + bit;
                if (rank != owners[i]) atomicAdd(to + rank * ranks + owners[i], 1ULL);
            });
    __syncthreads();
    for (u64 i = threadIdx.x; to != counts && i < counters; i += THREADS)
        if (near[i] != 0) atomicAdd(counts + i, near[i]);
}

}  // namespace zenc
