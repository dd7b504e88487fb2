// The choice of owners under `balanced by holders`: the same as that of the CPU's kernel, by the same
// arithmetic (zenc/loads.h). Units of one holder are given to it all at once. The others are few: one warp
// chooses for them, up to CHOSEN_TOGETHER at a time by the same loads.
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

// The owners of n <= CHOSEN_TOGETHER units, by one warp: each lane chooses the holder that owns one at the
// least cost, the first of equals, and then all add what is owned.
ZENC_DEVICE void choose_together(const u8* masks, u64 n, u64 ranks, Load* loads, u16* owners) {
    static_assert(CHOSEN_TOGETHER == WARP, "a lane each");
    u64 owner = 0;
    Load more{};
    if (lane() < n) {
        const u64 bytes = mask_bytes(ranks);
        const u8* const mask = masks + lane() * bytes;
        u64 count = 0;
        for (u64 byte = 0; byte < bytes; ++byte) count += population(mask[byte]);
        const Cost cost(ranks, count);
        bool has = false;
        i64 least = 0;
        for (u64 byte = 0; byte < bytes; ++byte)
            for_each_bit(mask[byte], [&](u64 bit) {
                const i64 mine = cost.of(loads[8 * byte + bit]);
                if (has && mine >= least) return;
                has = true;
                least = mine;
                owner = 8 * byte + bit;
            });
        owners[lane()] = static_cast<u16>(owner);
        more.own(ranks, 1, count);
    }
    __syncwarp();
    if (lane() < n) {
        atomicAdd(reinterpret_cast<u64*>(&loads[owner].sent), static_cast<u64>(more.sent));
        atomicAdd(reinterpret_cast<u64*>(&loads[owner].received), static_cast<u64>(more.received));
        atomicAdd(reinterpret_cast<u64*>(&loads[owner].owned), 1ULL);
    }
    __syncwarp();
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
    if (blockIdx.x != 0 || blockIdx.y != 0) return;
    Load* const loads = ranks <= NEAR_LOADS ? &near_loads[0] : far_loads;
    for (u64 k = threadIdx.x; k < ranks; k += THREADS) loads[k] = given_load(sets[k], ranks, alone[k]);
    __syncthreads();
    for (u64 first = 0, n; first < all && threadIdx.x < WARP; first += n) {
        n = chosen_together(all - first, ranks);
        choose_together(masks + first * mask_bytes(ranks), n, ranks, loads, owners + first);
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
