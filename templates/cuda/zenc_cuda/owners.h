// The index sets of all ranks, under `balanced by holders`: a block takes a tile of all their bitmaps to
// shared memory. So a call has no list of units: every kernel finds out anew who holds what, and from that
// who owns it (docs/adr/0026-memory-of-a-call.md). Every launch reads all bitmaps.
#pragma once

#include "zenc/loads.h"
#include "zenc_cuda/rows.h"

namespace zenc {

// A tile of all sets. Each thread has at most one of its words, number `at`: the lanes of a warp have
// consecutive words, and all warps about as many.
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

    // Loads a tile. Threads have met before, and meet again before the next tile.
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

    // The units that rank k holds in this thread's word; after own(), those that it owns.
    ZENC_DEVICE u64 word(u64 k) const { return word(k, at); }

    // Leaves each unit with its owner alone. Threads have met.
    ZENC_DEVICE void own() {
        first_several = sets_.several[number] + sum_of_threads_before(population(several));
        if (there) give_to_owners();
        __syncthreads();
        for (u64 k = threadIdx.x / WARP; k < sets_.ranks; k += WARPS) count_below(k);
        __syncthreads();
    }

    // The number of units in the tile that rank k owns.
    ZENC_DEVICE u64 owned(u64 k) const {
        return below_[k * sets_.words + words - 1] + population(word(k, words - 1));
    }

    // The owner of a held unit.
    ZENC_DEVICE u64 owner(u64 of, u64 bit) const {
        u64 k = 0;
        while (k + 1 < sets_.ranks && (word(k, of) >> bit & 1) == 0) ++k;
        return k;
    }

    // The slot of a unit in the part of its owner k.
    ZENC_DEVICE u64 slot(u64 k, u64 of, u64 bit) const {
        return before(k, of) + population(word(k, of) & low_mask(bit));
    }

    // The number of held units before the warp's words. All lanes call it.
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

    // The number of units that rank k owns before a word of the tile.
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

// The choice of owners under `balanced by holders`: the same as that of the CPU's kernel, by the same
// arithmetic (zenc/loads.h). Units of one holder are given to it all at once. For the others one block
// chooses, up to CHOSEN_TOGETHER at a time by the same loads.
//
// A mask has a bit a rank.

// Finds the masks of units with several holders, their number before each tile (`several`), and alone[k], the
// number of units that only rank k holds; these and `work` are cleared before.
ZENC_DEVICE void find_holders(const IndexSets& sets, u64* work, u8* masks, u64* alone) {
    u64* const several = sets.several;
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

// A load, and what its rank has come to own since: units, and the sum of their holders beyond two.
struct Chosen {
    Load load;
    u32 units;
    u32 more;
};

static_assert(sizeof(Chosen) <= 2 * sizeof(Load), "the host gives room for two loads a rank");

// Units whose owners are chosen by the same loads.
struct Together {
    const u8* masks;  // of all units
    u64 first;
    u64 count;
    u64 ranks;
};

// Returns the holder that owns a unit at the least cost, the first of equals. The unit has two holders and
// `more`; `begun` is its mask's first byte. Several costs are worked out at once, or each choice would wait
// for the one before.
ZENC_DEVICE u32 cheapest(const Together& of, u64 unit, u32 begun, i64 more, const Chosen* chosen) {
    constexpr u32 AT_ONCE = 4;
    const u32 bytes = static_cast<u32>(mask_bytes(of.ranks));
    const u8* const mask = of.masks + unit * bytes;
    u32 owner = 0;
    i64 least = static_cast<i64>(low_mask(63));
    for (u32 byte = 0; byte < bytes; ++byte)
        for (u32 rest = byte == 0 ? begun : mask[byte], rank = 0; rest != 0;) {
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                if (rest != 0) rank = 8 * byte + static_cast<u32>(__ffs(static_cast<int>(rest))) - 1;
                rest &= rest - 1;
                const i64 mine = chosen[rank].load.cost(of.ranks, more, drawn_ahead(unit, rank, of.count));
                owner = mine < least ? rank : owner;
                least = mine < least ? mine : least;
            }
        }
    return owner;
}

// Chooses owners of units together, by a block or a warp, whose threads choose one each and `meet`. For each
// owner, the first thread that chose it adds what all of them give to it.
template <class Meet>
ZENC_DEVICE void choose_together(const Together& of, u32 begun, Chosen* chosen, u16* owners, Meet meet) {
    static_assert(CHOSEN_TOGETHER == THREADS && FEW_TOGETHER == WARP, "a thread each");
    Chosen* mine = nullptr;
    if (threadIdx.x < of.count) {
        const u64 unit = of.first + threadIdx.x;
        const u64 bytes = mask_bytes(of.ranks);
        u32 count = static_cast<u32>(__popc(begun));
#pragma unroll 1
        for (u64 byte = 1; byte < bytes; ++byte)
            count += static_cast<u32>(__popc(of.masks[unit * bytes + byte]));
        const u32 owner = cheapest(of, unit, begun, static_cast<i64>(count) - 2, chosen);
        owners[unit] = static_cast<u16>(owner);
        atomicAdd(&chosen[owner].more, count - 2);
        if (atomicAdd(&chosen[owner].units, 1U) == 0) mine = chosen + owner;
    }
    meet();
    if (mine != nullptr) {
        mine->load.own(of.ranks, mine->units, mine->more);
        mine->units = mine->more = 0;
    }
    meet();
}

// Chooses the owners of units with several holders, by one block, whose first warp goes on alone when few are
// chosen together; counts[k * ranks + k] = the number of units that rank k owns.
ZENC_DEVICE void choose_all(const IndexSets& sets, const u8* masks, const u64* alone, Chosen* chosen,
                            u64* counts) {
    const u64 all = sets.several[sets.tiles()], ranks = sets.ranks, bytes = mask_bytes(ranks);
#pragma unroll 1
    for (u64 k = threadIdx.x; k < ranks; k += THREADS) {
        chosen[k] = {};
        chosen[k].load.hold(ranks, sets.sets[k].count);
        chosen[k].load.own(ranks, alone[k], -static_cast<i64>(alone[k]));
    }
    __syncthreads();
    const auto begun_at = [&](u64 unit) -> u32 { return unit < all ? masks[unit * bytes] : 0; };
    u32 begun = begun_at(threadIdx.x);
    const auto choose = [&](u64 first, u64 least, auto meet) {
        while (first < all) {
            const Together of = {masks, first, chosen_together(all - first, ranks), ranks};
            if (of.count <= least) break;
            first += of.count;
            const u32 next = begun_at(first + threadIdx.x);  // it comes while owners are chosen
            choose_together(of, begun, chosen, sets.owners, meet);
            begun = next;
        }
        return first;
    };
    const u64 first = choose(0, FEW_TOGETHER, [] { __syncthreads(); });
    if (threadIdx.x < WARP) choose(first, 0, [] { __syncwarp(); });
    __syncthreads();
    for (u64 k = threadIdx.x; k < ranks; k += THREADS)
        counts[k * ranks + k] = static_cast<u64>(chosen[k].load.owned);
}

constexpr u64 NEAR_RANKS = 256;  // those of more ranks are in memory

// Finds holders by all blocks, and chooses owners by the last one. `work` has 2 words and one a tile; `far`
// [2 ranks] is room for loads.
ZENC_DEVICE void choose_owners(const IndexSets& sets, u64* work, u8* masks, u64* alone, Load* far,
                               u64* counts) {
    ZENC_SHARED(Chosen, near, NEAR_RANKS);
    find_holders(sets, work + 1, masks, alone);
    if (!is_last_block(work, gridDim.x)) return;
    if (sets.ranks <= NEAR_RANKS)
        choose_all(sets, masks, alone, &near[0], counts);
    else
        choose_all(sets, masks, alone, reinterpret_cast<Chosen*>(far), counts);
}

constexpr u64 NEAR_COUNTERS = 512;

// counts[k * ranks + p] = units of rank k that rank p owns, for p other than k; these are cleared before.
ZENC_DEVICE void count_parts(const IndexSets& sets, const u8* masks, u64* counts) {
    ZENC_SHARED(u64, near, NEAR_COUNTERS);
    const u64 all = sets.several[sets.tiles()], ranks = sets.ranks, counters = ranks * ranks;
    u64* const to = counters <= NEAR_COUNTERS ? &near[0] : counts;
    for (u64 i = threadIdx.x; i < NEAR_COUNTERS; i += THREADS) near[i] = 0;
    __syncthreads();
    for (u64 i = thread_of_row(); i < all; i += threads_of_row())
        for (u64 byte = 0; byte < mask_bytes(ranks); ++byte)
            for_each_bit(masks[i * mask_bytes(ranks) + byte], [&](u64 bit) {
                const u64 rank = 8 * byte + bit;
                if (rank != sets.owners[i]) atomicAdd(to + rank * ranks + sets.owners[i], 1ULL);
            });
    __syncthreads();
    for (u64 i = threadIdx.x; to != counts && i < counters; i += THREADS)
        if (near[i] != 0) atomicAdd(counts + i, near[i]);
}

// Adds the digest of all owners to `digest`, which is cleared before; starts = where the units of each owner
// begin, tile by tile, of which the last block makes sums; counts as above. `work` has 1 + scan_words(R t)
// words, which are 0 before.
ZENC_DEVICE void digest_owners(const IndexSets& sets, const u8* masks, u64* digest, u64* counts, u64* work) {
    u64 sum = thread_of_row() == 0 ? WordDigest::of_ranks(sets.ranks) : 0;
    for_each_tile(sets, [&](SetTile& tile) {
        tile.own();
        if (tile.any != 0) {
            WordDigest of_word(tile.first + tile.at, tile.any);
            for_each_bit(tile.any, [&](u64 bit) { of_word.add(tile.owner(tile.at, bit)); });
            sum += of_word.value();
        }
        for (u64 k = threadIdx.x; k < sets.ranks; k += THREADS)
            sets.starts[k * sets.tiles() + tile.number] = tile.owned(k);
    });
    sum = sum_of_warp(sum);
    if (lane() == 0 && sum != 0) atomicAdd(digest, sum);
    count_parts(sets, masks, counts);
    if (is_last_block(work, gridDim.x)) scan(sets.starts, sets.ranks * sets.tiles(), work + 1);
}

}  // namespace zenc
