// Gradients under `balanced by holders`, once the owners are chosen (owners.h): cut in parts, and put
// together again. Rows are moved as bits: all types share this code.
//
// The slots of a part are the units that its rank owns, ascending. Which these are, and where their rows lie,
// follows from the sets, tile by tile.
#pragma once

#include "zenc_cuda/owners.h"

namespace zenc {

// Begins the bitmaps of targets. Whatever a rank holds of other ranks' parts is among the units of several
// holders. targets[i] gets all slots of its part where cuts[k, p] = i for p = k, the rank that owns it, and
// else none; every word is written. `work` has 2 words, which are 0 before.
ZENC_DEVICE void begin_parts(u64 ranks, const u64* cuts, const Segment* targets, u64 n, u64* work) {
    u64 mine = 0;
    for (u64 i; (i = draw_tile(work)) < n; ++mine) {
        const u64 slots = targets[i].slots, part = targets[i].part;
        const bool full = cuts[part * ranks + part] == i;
        for (u64 w = threadIdx.x; w < words_of(slots); w += THREADS)
            targets[i].bitmap[w] = full ? low_mask(slots - 64 * w) : 0;
        __syncthreads();
    }
    await_all(work + 1, mine, n);
}

// Marks the slots that rank k holds of part p in the bitmap of targets[cuts[k, p]], if that is one of n.
ZENC_DEVICE void mark_parts(const IndexSets& sets, const u8* masks, const u64* cuts, const Segment* targets,
                            u64 n, u64* work) {
    begin_parts(sets.ranks, cuts, targets, n, work);
    const u64 bytes = mask_bytes(sets.ranks);
    for_each_tile(sets, [&](SetTile& tile) {
        tile.own();
        const u8* mask = masks + tile.first_several * bytes;
        for_each_bit(tile.several, [&](u64 bit) {
            const u64 part = tile.owner(tile.at, bit), slot = tile.slot(part, tile.at, bit);
            for (u64 byte = 0; byte < bytes; ++byte, ++mask)
                for_each_bit(*mask, [&](u64 holder) {
                    const u64 rank = 8 * byte + holder, cut = cuts[rank * sets.ranks + part];
                    if (rank != part && cut < n)
                        atomicOr(targets[cut].bitmap + slot / 64, 1ULL << (slot % 64));
                });
        });
    });
}

// targets[p].values = the rows of rank `own` in its slots of part p, for all parts: cuts one rank's gradient.
ZENC_DEVICE void split_rows(const IndexSets& sets, u64 own, const Segment* targets, u64 row_bytes) {
    const u8* const values = static_cast<const u8*>(sets.sets[own].values);
    for_each_tile(sets, [&](SetTile& tile) {
        const u64 mine = tile.there ? tile.word(own) : 0;
        tile.own();
        const u64 in_front = Slots(sets.sets[own]).below(tile.first);
        const u64 before = in_front + sum_of_threads_before(population(mine));
        WindowRows batch(tile.begin, mine, __shfl_sync(ALL_LANES, before, 0));
        while (batch.next()) {
            u8* to = nullptr;
            if (batch.has_row()) {
                const u64 part = tile.owner(batch.word, batch.bit);
                const u64 slot = tile.slot(part, batch.word, batch.bit);
                const i64 row = row_of(targets[part], slot / 64, static_cast<u32>(slot % 64));
                to = static_cast<u8*>(targets[part].values) + static_cast<u64>(row) * row_bytes;
            }
            copy_rows(values + (batch.first + lane()) * row_bytes, batch.rows, row_bytes, to);
        }
    });
}

// Returns the row of a held unit in the complete parts.
ZENC_DEVICE const u8* address_of_owned(const SetTile& tile, const Segment* parts, u64 word, u64 bit,
                                       u64 row_bytes) {
    const u64 part = tile.owner(word, bit);
    return static_cast<const u8*>(parts[part].values) + tile.slot(part, word, bit) * row_bytes;
}

// Writes the units of the union, ascending, and their rows: a coalesced list.
ZENC_DEVICE void join_units(const IndexSets& sets, const Segment* parts, u64 row_bytes, i64* units, u8* out) {
    for_each_tile(sets, [&](SetTile& tile) {
        tile.own();
        WindowRows batch(tile.begin, tile.any, tile.rows_before());
        while (batch.next()) {
            const u8* source = nullptr;
            if (batch.has_row()) {
                units[batch.first + lane()] = static_cast<i64>(64 * tile.first + batch.slot());
                source = address_of_owned(tile, parts, batch.word, batch.bit, row_bytes);
            }
            copy_rows(source, batch.rows, row_bytes, out + (batch.first + lane()) * row_bytes);
        }
    });
}

// Writes the union as a dense tensor out [units, row_bytes], with +0 for units that no rank holds; if it
// `keeps`, these are +0 already and stay unwritten.
ZENC_DEVICE void join_dense(const IndexSets& sets, const Segment* parts, u64 row_bytes, bool keeps, u8* out) {
    for_each_tile(sets, [&](SetTile& tile) {
        tile.own();
        const u64 there = static_cast<u64>(__popc(__ballot_sync(ALL_LANES, tile.there)));
        for (u64 i = 0; i < 2 * there; ++i) {
            const u64 word = tile.begin + i / 2, bit = i % 2 * WARP + lane();
            const u64 any = __shfl_sync(ALL_LANES, tile.any, static_cast<int>(i / 2));
            const u64 first = 64 * (tile.first + word) + i % 2 * WARP;
            if (first >= sets.units()) break;
            const u64 rows = sets.units() - first < WARP ? sets.units() - first : WARP;
            const u8* const source =
                (any >> bit & 1) == 0 ? nullptr : address_of_owned(tile, parts, word, bit, row_bytes);
            u8* const to = keeps && source == nullptr ? nullptr : out + (first + lane()) * row_bytes;
            copy_rows(source, static_cast<u32>(rows), row_bytes, to);
        }
    });
}

}  // namespace zenc
