// Gradients under `balanced by holders`, once the owners are chosen (owners.h): cut in parts, and put
// together again. Rows are moved as bits: all types share this code.
//
// The slots of a part are the units that its rank owns, ascending. keys[i] has the owner and the unit of
// number i of the union; sorted, they list the units of all parts, part by part, and starts[p] is where those
// of part p begin. places[i] has the owner and the slot of number i.
#pragma once

#include "zenc_cuda/owners.h"
#include "zenc_cuda/rows.h"

namespace zenc {

// A rank, and a unit or a slot of its part, in one word: no tensor has 2^48 units.
struct Owned {
    static constexpr u32 SHIFT = 48;

    u64 owner;
    u64 of;

    ZENC_DEVICE explicit Owned(u64 word) : owner(word >> SHIFT), of(word & low_mask(SHIFT)) {}
    ZENC_DEVICE static u64 word(u64 owner, u64 of) { return owner << SHIFT | of; }
};

// Reads 9 u / 64 bytes and 2 p; writes 8 p.
ZENC_DEVICE void owner_keys(const Segment& any, const u16* owners, u64* keys) {
    for (u64 w = thread_of_row(); w < words_of(any.slots); w += threads_of_row()) {
        u64 i = first_number(any, w);
        for_each_bit(any.bitmap[w], [&](u64 bit) {
            keys[i] = Owned::word(owners[i], 64 * w + bit);
            ++i;
        });
    }
}

// Reads 32 bytes or 40 and writes 8 for each of n units.
ZENC_DEVICE void place_slots(const u64* sorted, i64 n, const u64* starts, const Segment& any, u64* places) {
    for (u64 j = thread_of_row(); j < static_cast<u64>(n); j += threads_of_row()) {
        const Owned unit(sorted[j]);
        places[number_of(any, unit.of)] = Owned::word(unit.owner, j - starts[unit.owner]);
    }
}

// targets[i].bitmap = the slots of its part that the rank with the set of[i] holds. A warp a word: for a part
// of s slots it reads 16 s bytes and writes s / 8.
ZENC_DEVICE void mark_parts(const Segment* targets, i64 n, const Segment* of, const u64* sorted,
                            const u64* starts) {
    for_each_segment(n, [&](u64 i) {
        const u64* const units = sorted + starts[targets[i].part];
        const u64 slots = targets[i].slots;
        for (u64 w = warp_of_row(); w < words_of(slots); w += warps_of_row()) {
            u32 halves[2];
            for (u32 half = 0; half < 2; ++half) {
                const u64 slot = 64 * w + half * WARP + lane();
                const u64 unit = slot < slots ? Owned(units[slot]).of : 0;
                const bool held = slot < slots && (of[i].bitmap[unit / 64] >> unit % 64 & 1) != 0;
                halves[half] = __ballot_sync(ALL_LANES, held);
            }
            if (lane() == 0) targets[i].bitmap[w] = static_cast<u64>(halves[1]) << 32 | halves[0];
        }
    });
}

// The values of targets[i] = the rows of `own` in its slots: one rank's gradient becomes its segments of all
// parts. For each row it reads 24 bytes or 32 and the row, and writes the row.
ZENC_DEVICE void split_rows(const Segment* targets, i64 n, const Segment& own, const u64* sorted,
                            const u64* starts, u64 row_bytes) {
    for_each_segment(n, [&](u64 i) {
        const u64* const units = sorted + starts[targets[i].part];
        RowBatches batch(targets[i], row_bytes);
        while (batch.next()) {
            const u8* source = nullptr;
            if (batch.has_row()) {
                const u64 unit = Owned(units[64 * batch.word + batch.bit]).of;
                source = address_of(own, unit / 64, static_cast<u32>(unit % 64), row_bytes);
            }
            copy_rows(source, batch.rows, row_bytes,
                      static_cast<u8*>(targets[i].values) + batch.first * row_bytes);
        }
    });
}

// The row of a unit in the complete parts.
ZENC_DEVICE const u8* address_of_place(const Segment* parts, u64 place, u64 row_bytes) {
    const Owned slot(place);
    return static_cast<const u8*>(parts[slot.owner].values) + slot.of * row_bytes;
}

// The units of the union, ascending, and their rows: a coalesced list. For each it reads 8 bytes and the row,
// and writes 8 and the row.
ZENC_DEVICE void join_units(const Segment& any, const u64* places, const Segment* parts, u64 row_bytes,
                            i64* units, u8* out) {
    RowBatches batch(any, row_bytes);
    while (batch.next()) {
        const u8* source = nullptr;
        if (batch.has_row()) {
            const u64 i = batch.first + lane();
            units[i] = static_cast<i64>(64 * batch.word + batch.bit);
            source = address_of_place(parts, places[i], row_bytes);
        }
        copy_rows(source, batch.rows, row_bytes, out + batch.first * row_bytes);
    }
}

// The same as a dense tensor out [units, row_bytes], of which every byte is written; +0 for units that nobody
// holds. Reads 9 u / 64 bytes more, and 8 no more for units.
ZENC_DEVICE void join_dense(const Segment& any, const u64* places, const Segment* parts, u64 row_bytes,
                            u8* out) {
    const u64 together = row_bytes >= WIDE_ROW ? WIDE_ROWS : WARP;
    for (u64 first = warp_of_row() * together; first < any.slots; first += warps_of_row() * together) {
        const u64 rows = any.slots - first < together ? any.slots - first : together;
        const u64 unit = first + lane();
        const i64 i = lane() < rows ? row_of(any, unit / 64, static_cast<u32>(unit % 64)) : -1;
        const u8* const source = i < 0 ? nullptr : address_of_place(parts, places[i], row_bytes);
        copy_rows(source, static_cast<u32>(rows), row_bytes, out + first * row_bytes);
    }
}

}  // namespace zenc
