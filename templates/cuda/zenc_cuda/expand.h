// Moving rows without changing them: to segments with other slots, to a dense tensor, to a coalesced list of
// units.
#pragma once

#include "zenc/geometry.h"
#include "zenc_cuda/pack.h"
#include "zenc_cuda/rows.h"

namespace zenc {

// to[i].values = the row of every slot that to[i] has, from from[i], or +0 where that has none: what `fill`
// added, or all but what `mark_nonzero` left out.
template <class Copies>
ZENC_DEVICE void spread(const Segment* from, const Segment* to, i64 n, u64 row_bytes) {
    Copies copies;
    for_each_segment(n, [&](u64 i) {
        RowBatches batch(to[i], row_bytes);
        while (batch.next()) {
            const u8* const source =
                batch.has_row() ? address_of(from[i], batch.word, batch.bit, row_bytes) : nullptr;
            copies.copy(source, batch.rows, row_bytes,
                        static_cast<u8*>(to[i].values) + (batch.first + lane()) * row_bytes);
        }
    });
}

// The values of 32 runs of units from `first` on, of which this lane knows which it has (`bits`), and the
// first value of its run. If it `keeps`, sectors of which no value is there are not written.
template <class Bits>
ZENC_DEVICE void write_runs(const Runs& runs, u64 first, u64 units, u64 bits, const u8* values, bool keeps,
                            Bits* out) {
    constexpr u32 SECTOR = 32 / sizeof(Bits);
    const Bits* const row = reinterpret_cast<const Bits*>(values);
#pragma unroll 1
    for (u32 half = 0; half < runs.length(); half += AHEAD) {
        Bits loaded[AHEAD];
        u32 writes = 0;
        runs.for_each(half * WARP, AHEAD, [&](u32 step, u32 owner, u32 place) {
            const u64 of_run = __shfl_sync(ALL_LANES, bits, static_cast<int>(owner % WARP));
            const Bits* const from = shuffle(row, owner % WARP);
            const bool has = owner < WARP && (of_run >> place & 1) != 0;
            loaded[step] = has ? from[population(of_run & low_mask(place))] : Bits{0};
            const u64 sector = of_run >> (place & ~(SECTOR - 1)) & low_mask(SECTOR);
            writes |= static_cast<u32>(!keeps || sector != 0) << step;
        });
        for (u32 step = 0; step < AHEAD; ++step)
            if (const u64 to = first + (half + step) * WARP + lane();
                half + step < runs.length() && to < units && (writes >> step & 1) != 0)
                out[to] = loaded[step];
    }
}

// Rows of one value: 32 runs a warp, each of which lies in one word of the bitmap of its part.
template <class Mapping>
ZENC_DEVICE void expand_runs(const Geometry<Mapping>& geometry, const Segment* segments, u64 value_bytes,
                             bool keeps, u8* out) {
    const Runs runs{run_shift(geometry.mapping)};
#pragma unroll 1
    for (u64 first = warp_of_row() * runs.all(); first < geometry.units;
         first += warps_of_row() * runs.all()) {
        const u64 begin = first + lane() * runs.length();
        u64 bits = 0;
        const u8* row = nullptr;
        if (begin < geometry.units) {
            const u64 slot = geometry.slot_of(begin), part = geometry.part_of(slot);
            const u64 local = slot - geometry.first_slot(part);
            const u64 word = segments[part].bitmap[local / 64];
            bits = word >> (local % 64) & low_mask(runs.length());
            const u64 before =
                Slots(segments[part]).below(local / 64) + population(word & low_mask(local % 64));
            if (bits != 0) row = static_cast<const u8*>(segments[part].values) + before * value_bytes;
        }
        if (value_bytes == 4)
            write_runs(runs, first, geometry.units, bits, row, keeps, reinterpret_cast<u32*>(out));
        else if (value_bytes == 2)
            write_runs(runs, first, geometry.units, bits, row, keeps, reinterpret_cast<u16*>(out));
        else
            write_runs(runs, first, geometry.units, bits, row, keeps, reinterpret_cast<u64*>(out));
    }
}

// out [units, row_bytes] = the rows of all units, +0 for absent ones: every byte is written once, but if it
// `keeps`, for then these are +0 already; nothing where `veto` is there, and is not 0.
template <class Copies, class Mapping>
ZENC_DEVICE void expand_dense(const Geometry<Mapping>& geometry, const Segment* segments, u64 row_bytes,
                              const u64* veto, bool keeps, u8* out) {
    if (veto != nullptr && *veto != 0) return;
    if constexpr (!Copies::IN_BULK)
        if (geometry.width == 1) return expand_runs(geometry, segments, row_bytes, keeps, out);
    Copies copies;
    const u64 together = row_bytes >= WIDE_ROW ? WIDE_ROWS : WARP;
    for (u64 first = warp_of_row() * together; first < geometry.units; first += warps_of_row() * together) {
        const u64 rows = geometry.units - first < together ? geometry.units - first : together;
        const u8* source = nullptr;
        if (lane() < rows)
            source = row_of_slot<u8>(geometry, segments, geometry.slot_of(first + lane()), row_bytes);
        u8* const to = keeps && source == nullptr ? nullptr : out + (first + lane()) * row_bytes;
        copies.copy(source, static_cast<u32>(rows), row_bytes, to);
    }
}

// Sets the bits of the occupied units of all parts in a bitmap over units, which is cleared.
template <class Mapping>
ZENC_DEVICE void mark_found(const Geometry<Mapping>& geometry, const Segment* segments,
                            const Segment* found) {
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        RowBatches batch(segments[part], 1);
        while (batch.next()) {
            if (!batch.has_row()) continue;
            const u64 unit = geometry.mapping.unit(geometry.first_slot(part) + 64 * batch.word + batch.bit);
            atomicOr(found->bitmap + unit / 64, 1ULL << (unit % 64));
        }
    });
}

// The occupied units and their rows, from a bitmap of them with its ranks: row by row of the result.
template <class Copies, class Mapping>
ZENC_DEVICE void expand_found(const Geometry<Mapping>& geometry, const Segment* segments,
                              const Segment& found, u64 row_bytes, i64* units, u8* out) {
    Copies copies;
    RowBatches batch(found, row_bytes);
    while (batch.next()) {
        const u8* source = nullptr;
        if (batch.has_row()) {
            const u64 unit = 64 * batch.word + batch.bit;
            units[batch.first + lane()] = static_cast<i64>(unit);
            source = row_of_slot<u8>(geometry, segments, geometry.slot_of(unit), row_bytes);
        }
        copies.copy(source, batch.rows, row_bytes, out + (batch.first + lane()) * row_bytes);
    }
}

// The number that the first row of a contiguous part has among those of all parts.
ZENC_DEVICE u64 rows_before(const Segment* segments, u64 part) {
    u64 rows = 0;
    for (u64 k = 0; k < part; ++k) rows += occupied(segments[k]);
    return rows;
}

// Ranges hold ascending units already: each is copied behind those before it, unless it lies there.
template <class Copies, class Mapping>
ZENC_DEVICE void expand_linear(const Geometry<Mapping>& geometry, const Segment* segments, u64 row_bytes,
                               i64* units, u8* out) {
    Copies copies;
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        const u64 start = rows_before(segments, part);
        const u8* const values = static_cast<const u8*>(segments[part].values);
        RowBatches batch(segments[part], row_bytes);
        while (batch.next()) {
            const u64 row = batch.first + lane();
            if (batch.has_row())
                units[start + row] = static_cast<i64>(
                    geometry.mapping.unit(geometry.first_slot(part) + 64 * batch.word + batch.bit));
            if (u8* const to = out + (start + row) * row_bytes; to != values + row * row_bytes)
                copies.copy(values + row * row_bytes, batch.rows, row_bytes, to);
        }
    });
}

// The occupied units of all parts, ascending, and their rows: a coalesced list. `found` is a bitmap over
// units with its ranks, from mark_found; contiguous parts do not need it.
template <class Copies, class Mapping>
ZENC_DEVICE void expand_units(const Geometry<Mapping>& geometry, const Segment* segments,
                              const Segment* found, u64 row_bytes, i64* units, u8* out) {
    if constexpr (Mapping::IS_IDENTITY)
        expand_linear<Copies>(geometry, segments, row_bytes, units, out);
    else if (blockIdx.y == 0)  // there is one bitmap: other rows of the grid would write all of it again
        expand_found<Copies>(geometry, segments, *found, row_bytes, units, out);
}

}  // namespace zenc
