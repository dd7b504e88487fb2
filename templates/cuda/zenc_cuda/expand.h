// Moving rows without changing them: to segments with other slots, to a dense tensor, to a coalesced list of
// units.
#pragma once

#include "zenc_cuda/pack.h"

namespace zenc {

// to[i].values = the rows of from[i] in the slots that to[i] has, or +0 where from[i] has none: after `fill`,
// which added slots, or `mark_nonzero`, which left some out.
ZENC_DEVICE void spread(const Segment* to, u64 n, const Segment* from, u64 row_bytes) {
    for_each_segment(n, [&](u64 i) {
        RowBatches batch(to[i], row_bytes);
        while (batch.next()) {
            const u8* const source =
                batch.has_row() ? address_of(from[i], batch.word, batch.bit, row_bytes) : nullptr;
            copy_rows(source, batch.rows, row_bytes,
                      static_cast<u8*>(to[i].values) + (batch.first + lane()) * row_bytes);
        }
    });
}

// Single values are written in the order of slots: values and bitmaps are read once, one after another.

// Neighbouring values that a lane writes at once.
constexpr u32 NEIGHBOURS = 4;
template <class Bits>
using Neighbours = Columns<Bits, NEIGHBOURS>;

// A window as a warp reads it: the bits of each half of a word, and how many values precede them.
template <class Bits>
struct RankedWindow {
    const Bits* values;
    const uint2* halves;  // [2 * WARP], shared

    // A window from word `first` of a segment on.
    ZENC_DEVICE RankedWindow(const Segment& segment, u64 first, uint2* halves_) : halves(halves_) {
        const Slots slots(segment);
        const u64 word = first + lane() < slots.words ? segment.bitmap[first + lane()] : 0;
        const u32 low = static_cast<u32>(__popc(static_cast<u32>(word)));
        const u32 mine = static_cast<u32>(population(word)), before = inclusive_in_warp(mine) - mine;
        values = static_cast<const Bits*>(segment.values) + slots.below(first);
        __syncwarp();
        halves_[2 * lane()] = {static_cast<u32>(word), before};
        halves_[2 * lane() + 1] = {static_cast<u32>(word >> 32), before + low};
        __syncwarp();
    }

    // The values of the slots from this one on, +0 for absent ones. They are not `wanted` of a sector without
    // any if it `keeps`.
    ZENC_DEVICE Neighbours<Bits> at(u32 slot, bool keeps, bool& wanted) const {
        constexpr u32 SECTOR = 32 / sizeof(Bits);
        const uint2 half = halves[slot / 32];
        const u32 bit = slot % 32, bits = half.x >> bit;
        const Bits* const from = values + (half.y + static_cast<u32>(__popc(half.x & ((1U << bit) - 1))));
        const u32 first = bits & 1, second = bits >> 1 & 1, third = bits >> 2 & 1;
        Neighbours<Bits> found{};
        if (first != 0) found.of[0] = from[0];
        if (second != 0) found.of[1] = from[first];
        if (third != 0) found.of[2] = from[first + second];
        if ((bits & 8) != 0) found.of[3] = from[first + second + third];
        wanted = !keeps || (half.x >> (bit & ~(SECTOR - 1)) & static_cast<u32>(low_mask(SECTOR))) != 0;
        return found;
    }
};

// Writes the slots of a part's window, from word `first` on, to `out`.
template <class Bits, class Mapping>
ZENC_DEVICE void expand_window(const Geometry<Mapping>& geometry, const Segment& segment, u64 part, u64 first,
                               bool keeps, uint2* halves, Bits* out) {
    constexpr u32 N = NEIGHBOURS, STEPS = WINDOW / (N * WARP);
    const RankedWindow<Bits> window(segment, first, halves);
    const u64 begin = geometry.first_slot(part) + 64 * first, left = segment.slots - 64 * first;
    bool wanted;
    if ((Mapping::IS_IDENTITY || run_shift(geometry.mapping) == 6) && left >= WINDOW) {
        Bits* const run = out + geometry.mapping.unit(begin + 64 * lane());
        if (!__any_sync(ALL_LANES, !Neighbours<Bits>::fit(run))) {
#pragma unroll 4
            for (u32 k = 0; k < STEPS; ++k) {
                const u32 slot = (k * WARP + lane()) * N;
                Bits* const to = shuffle(run, slot / 64) + slot % 64;
                const Neighbours<Bits> found = window.at(slot, keeps, wanted);
                if (wanted) found.stream(to);
            }
            return;
        }
    }
#pragma unroll 1
    for (u32 slot = lane() * N; slot < left && slot < WINDOW; slot += WARP * N) {
        const Neighbours<Bits> found = window.at(slot, keeps, wanted);
        const u64 unit = geometry.mapping.unit(begin + slot);
#pragma unroll
        for (u32 i = 0; i < N; ++i)
            if (slot + i < left && wanted) out[unit + i] = found.of[i];
    }
}

// out [units] of a mapping whose slots follow from tables, in the order of units: neighbours are neighbours
// in their parts too. All that is looked up of several units is under way together.
template <class Bits, class Mapping>
ZENC_DEVICE void expand_by_units(const Geometry<Mapping>& geometry, const Segment* segments, bool keeps,
                                 Bits* out) {
    constexpr u32 TOGETHER = 4;
    const u64 units = geometry.units;
    for (u64 first = warp_of_row() * WARP * TOGETHER + lane(); first - lane() < units;
         first += warps_of_row() * WARP * TOGETHER) {
        const Segment* parts[TOGETHER];
        u32 slots[TOGETHER];
        u64 words[TOGETHER];
        const Bits* from[TOGETHER];
        Bits values[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            const auto place = geometry.place_of(first + k * WARP < units ? first + k * WARP : 0);
            parts[k] = segments + place.part;
            slots[k] = static_cast<u32>(place.slot);
        }
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) words[k] = parts[k]->bitmap[slots[k] / 64];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            from[k] = nullptr;
            if ((words[k] >> (slots[k] % 64) & 1) == 0) continue;
            from[k] = static_cast<const Bits*>(parts[k]->values) + Slots(*parts[k]).below(slots[k] / 64) +
                      population(words[k] & low_mask(slots[k] % 64));
        }
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) values[k] = from[k] == nullptr ? Bits{0} : *from[k];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k)
            if (first + k * WARP < units && !(keeps && from[k] == nullptr))
                __stcs(out + first + k * WARP, values[k]);
    }
}

// out [units] = the values of all units, +0 for absent ones, a warp a window: each is written once, but if it
// `keeps`, for then absent ones are +0 already, and sectors without any other are left; nothing where `veto`
// is there, and is not 0.
template <class Bits, class Mapping>
ZENC_DEVICE void expand_values(const Geometry<Mapping>& geometry, const Segment* segments, const u64* veto,
                               bool keeps, Bits* out) {
    ZENC_SHARED(uint2, halves, 2 * THREADS);
    if (veto != nullptr && *veto != 0) return;
    if constexpr (Mapping::HAS_TABLES && !Mapping::IS_IDENTITY)
        return expand_by_units(geometry, segments, keeps, out);
    const Divider windows(ceil_divide(geometry.part_slots.divisor, WINDOW));
    for (u64 i = warp_of_row(); i < geometry.parts * windows.divisor; i += warps_of_row()) {
        const u64 part = windows.quotient(i), first = (i - part * windows.divisor) * WARP;
        if (64 * first < segments[part].slots)
            expand_window(geometry, segments[part], part, first, keeps,
                          halves + threadIdx.x / WARP * 2 * WARP, out);
    }
}

// Writes a window of `to`, from word `first` on: the values of `from`, or +0 where that has none.
template <class Bits>
ZENC_DEVICE void spread_window(const Segment& from, const Segment& to, u64 first, uint2* halves) {
    constexpr u32 N = NEIGHBOURS;
    const RankedWindow<Bits> window(from, first, halves);
    const Slots slots(to);
    const u64 word = first + lane() < slots.words ? slots.bitmap[first + lane()] : 0;
    const u32 mine = static_cast<u32>(population(word)), before = inclusive_in_warp(mine) - mine;
    Bits* const out = static_cast<Bits*>(to.values) + slots.below(first);
#pragma unroll 1
    for (u32 slot = lane() * N; slot - lane() * N < WINDOW; slot += WARP * N) {
        const u64 bits = __shfl_sync(ALL_LANES, word, static_cast<int>(slot / 64));
        const u32 below = __shfl_sync(ALL_LANES, before, static_cast<int>(slot / 64));
        const u32 wanted = static_cast<u32>(bits >> (slot % 64)) & ((1U << N) - 1);
        Bits* to_next = out + below + population(bits & low_mask(slot % 64));
        bool any;
        const Neighbours<Bits> found = window.at(slot, false, any);
        if (wanted == (1U << N) - 1 && Neighbours<Bits>::fit(to_next)) {
            found.stream(to_next);
            continue;
        }
#pragma unroll
        for (u32 i = 0; i < N; ++i)
            if ((wanted >> i & 1) != 0) *to_next++ = found.of[i];
    }
}

// spread for rows of one value. A `to` without a bitmap has all slots.
template <class Bits>
ZENC_DEVICE void spread_values(const Segment* to, u64 n, const Segment* from) {
    ZENC_SHARED(uint2, halves, 2 * THREADS);
    for_each_segment(n, [&](u64 i) {
        const i64 slots = static_cast<i64>(from[i].slots);
        const Geometry<Contiguous> whole(slots, 1, 1, Contiguous());
        uint2* const mine = halves + threadIdx.x / WARP * 2 * WARP;
        for (u64 at = warp_of_row(); at * WINDOW < from[i].slots; at += warps_of_row())
            if (to[i].bitmap != nullptr)
                spread_window<Bits>(from[i], to[i], at * WARP, mine);
            else
                expand_window(whole, from[i], 0, at * WARP, false, mine, static_cast<Bits*>(to[i].values));
    });
}

// expand_values for rows [units, row_bytes].
template <class Mapping>
ZENC_DEVICE void expand_dense(const Geometry<Mapping>& geometry, const Segment* segments, u64 row_bytes,
                              const u64* veto, bool keeps, u8* out) {
    if (veto != nullptr && *veto != 0) return;
    const u64 together = row_bytes >= WIDE_ROW ? WIDE_ROWS : WARP;
    for (u64 first = warp_of_row() * together; first < geometry.units; first += warps_of_row() * together) {
        const u64 rows = geometry.units - first < together ? geometry.units - first : together;
        const u8* source = nullptr;
        if (lane() < rows)
            source = row_of_slot<u8>(geometry, segments, geometry.slot_of(first + lane()), row_bytes);
        u8* const to = keeps && source == nullptr ? nullptr : out + (first + lane()) * row_bytes;
        copy_rows(source, static_cast<u32>(rows), row_bytes, to);
    }
}

// Sets the bits of the occupied units of all parts in a bitmap over units, which is cleared.
template <class Mapping>
ZENC_DEVICE void mark_found(const Geometry<Mapping>& geometry, const Segment* segments,
                            const Segment* found) {
    for_each_segment(geometry.parts, [&](u64 part) {
        RowBatches batch(segments[part], 1);
        while (batch.next()) {
            if (!batch.has_row()) continue;
            const u64 unit = geometry.mapping.unit(geometry.first_slot(part) + batch.slot());
            atomicOr(found->bitmap + unit / 64, 1ULL << (unit % 64));
        }
    });
}

// Writes the occupied units and their rows in order, from a bitmap over units and its ranks.
template <class Mapping>
ZENC_DEVICE void expand_found(const Geometry<Mapping>& geometry, const Segment* segments,
                              const Segment& found, u64 row_bytes, i64* units, u8* out) {
    RowBatches batch(found, row_bytes);
    while (batch.next()) {
        const u8* source = nullptr;
        if (batch.has_row()) {
            units[batch.first + lane()] = static_cast<i64>(batch.slot());
            source = row_of_slot<u8>(geometry, segments, geometry.slot_of(batch.slot()), row_bytes);
        }
        copy_rows(source, batch.rows, row_bytes, out + (batch.first + lane()) * row_bytes);
    }
}

// The number of rows in the parts before a contiguous one.
ZENC_DEVICE u64 rows_before(const Segment* segments, u64 part) {
    u64 rows = 0;
    for (u64 k = 0; k < part; ++k) rows += occupied(segments[k]);
    return rows;
}

// Copies ranges, whose units ascend already: each behind those before it, unless it lies there.
template <class Mapping>
ZENC_DEVICE void expand_linear(const Geometry<Mapping>& geometry, const Segment* segments, u64 row_bytes,
                               i64* units, u8* out) {
    for_each_segment(geometry.parts, [&](u64 part) {
        const u64 start = rows_before(segments, part);
        const u8* const values = static_cast<const u8*>(segments[part].values);
        RowBatches batch(segments[part], row_bytes);
        while (batch.next()) {
            const u64 row = batch.first + lane();
            if (batch.has_row())
                units[start + row] =
                    static_cast<i64>(geometry.mapping.unit(geometry.first_slot(part) + batch.slot()));
            if (u8* const to = out + (start + row) * row_bytes; to != values + row * row_bytes)
                copy_rows(values + row * row_bytes, batch.rows, row_bytes, to);
        }
    });
}

// Writes the occupied units of all parts, ascending, and their rows: a coalesced list. `found` is a bitmap
// over units with its ranks, from mark_found; contiguous parts do not need it.
template <class Mapping>
ZENC_DEVICE void expand_units(const Geometry<Mapping>& geometry, const Segment* segments,
                              const Segment* found, u64 row_bytes, i64* units, u8* out) {
    if constexpr (Mapping::IS_IDENTITY)
        expand_linear(geometry, segments, row_bytes, units, out);
    else if (blockIdx.y == 0)  // there is one bitmap: other rows of the grid would write all of it again
        expand_found(geometry, segments, *found, row_bytes, units, out);
}

}  // namespace zenc
