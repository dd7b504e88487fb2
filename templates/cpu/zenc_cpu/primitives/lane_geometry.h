// Geometry for batches: units and slots that are mapped and located together, in the lanes of vectors.
#pragma once

#include "zenc/geometry.h"
#include "zenc_cpu/primitives/bits.h"

namespace zenc {

// A width that the compiler knows, so that loops over single values carry no inner loop.
struct One {
    constexpr operator u64() const { return 1; }
};

// run(width), with width as the constant One where it is 1.
template <class Run>
inline auto with_width(u64 width, Run run) {
    return width == 1 ? run(One{}) : run(width);
}

// The parts of n slots < end_of_slots, and the numbers of their bits in the bitmap of all parts.
template <class Mapping>
ZENC_SHARED_CODE inline void locate(const Geometry<Mapping>& geometry, const u64* __restrict slots, u64 n,
                                    u64* __restrict parts, u64* __restrict bits) {
    const Divider by = geometry.part_slots;  // local: the compiler knows that the outputs do not overlap it
    const u32 gap = static_cast<u32>(geometry.gap());
    if (geometry.end_of_slots() >> 32 == 0) {
        for (u64 i = 0; i < n; ++i) {  // vectorises
            const u32 part = by.quotient(static_cast<u32>(slots[i]));
            parts[i] = part;
            bits[i] = slots[i] + static_cast<u64>(part) * gap;
        }
    } else {
        for (u64 i = 0; i < n; ++i) {
            parts[i] = by.quotient(slots[i]);
            bits[i] = slots[i] + parts[i] * gap;
        }
    }
}

// Numbers that are mapped together, in the lanes of a vector. BATCH of them are collected at a time, or a few
// more.
constexpr u64 BATCH = 256;
constexpr u64 MOST_IN_BATCH = BATCH + 64;

// out = the slots of n units, both arrays of MOST_IN_BATCH. Unused lanes of the last vector repeat the first
// number.
template <class Mapping>
ZENC_SHARED_CODE inline void slots_of_batch(const Mapping& mapping, u64* units, u64 n, u64* out) {
    static_assert(BATCH % Mapping::LANES == 0, "batches of whole vectors");
    for (u64 i = n; i % Mapping::LANES != 0; ++i) units[i] = units[0];
    for (u64 i = 0; i < n; i += Mapping::LANES) mapping.slots(units + i, out + i);
}

// out = the units of n slots, as above.
template <class Mapping>
ZENC_SHARED_CODE inline void units_of_batch(const Mapping& mapping, u64* slots, u64 n, u64* out) {
    for (u64 i = n; i % Mapping::LANES != 0; ++i) slots[i] = slots[0];
    for (u64 i = 0; i < n; i += Mapping::LANES) mapping.units_at(slots + i, out + i);
}

// visit(first, numbers, n) for batches of ids [n]. Returns 0, or -1 - i if ids[i] is not below `limit`; then
// the batches before that of i have been visited.
template <class Visit>
inline i64 for_each_id_batch(const i64* ids, u64 n, u64 limit, Visit visit) {
    u64 batch[MOST_IN_BATCH];
    for (u64 first = 0; first < n; first += BATCH) {
        const u64 size = n - first < BATCH ? n - first : BATCH;
        u64 greatest = 0;
        for (u64 i = 0; i < size; ++i) {
            batch[i] = static_cast<u64>(ids[first + i]);  // a negative id is a huge one
            greatest = greatest < batch[i] ? batch[i] : greatest;
        }
        if (greatest >= limit) {
            u64 bad = 0;
            while (batch[bad] < limit) ++bad;
            return -1 - static_cast<i64>(first + bad);
        }
        visit(first, batch, size);
    }
    return 0;
}

// out[i] = slot of units[i]. Returns 0, or -1 - i if units[i] is out of range.
template <class Mapping>
inline i64 slots_of_units(const Geometry<Mapping>& geometry, const i64* units, u64 n, i64* out) {
    return for_each_id_batch(units, n, geometry.units, [&](u64 first, u64* batch, u64 size) {
        u64 slots[MOST_IN_BATCH];
        slots_of_batch(geometry.mapping, batch, size, slots);
        copy_bytes(out + first, slots, size * 8);
    });
}

// out[i] = unit of slots[i]. Returns 0, or -1 - i if slots[i] is out of range, or in a gap behind a part.
template <class Mapping>
inline i64 units_of_slots(const Geometry<Mapping>& geometry, const i64* slots, u64 n, i64* out) {
    if constexpr (Mapping::HAS_TABLES)
        for (u64 i = 0; i < n; ++i)
            if (!geometry.has_slot(static_cast<u64>(slots[i]))) return -1 - static_cast<i64>(i);
    return for_each_id_batch(slots, n, geometry.end_of_slots(), [&](u64 first, u64* batch, u64 size) {
        u64 units[MOST_IN_BATCH];
        units_of_batch(geometry.mapping, batch, size, units);
        copy_bytes(out + first, units, size * 8);
    });
}

// The occupied units of all parts, batch by batch, in the order of their slots.
template <class Mapping>
class OccupiedUnits {
public:
    u64 part = 0;
    u64 first = 0;  // units of the same part before this batch
    u64 n = 0;
    u64 units[MOST_IN_BATCH];

    OccupiedUnits(const Geometry<Mapping>& geometry, const u64* bitmap)
        : geometry_(geometry), bitmap_(bitmap) {}

    // Goes on to the next batch, of one part. Returns false if there is none. All but the last one of a part
    // have BATCH units: no lane stays empty.
    ZENC_SHARED_CODE bool next() {
        first += n;
        for (n = 0; part < geometry_.parts; ++part, word_ = 0, first = 0) {
            const u64* const words = bitmap_ + part * geometry_.part_words;
            const u64 part_words = words_of(geometry_.slots_of(part));
            const u64 start = geometry_.first_slot(part);
            u64 found = waiting_;
            u64 w = word_;
            for (; w < part_words && found < BATCH; ++w)
                found += append_bits<4>(words[w], start + 64 * w, slots_ + found);
            word_ = w;
            if (found == 0) continue;
            n = found < BATCH ? found : BATCH;
            units_of_batch(geometry_.mapping, slots_, n, units);
            waiting_ = found - n;
            copy_bytes(slots_, slots_ + n, waiting_ * 8);
            return true;
        }
        return false;
    }

private:
    const Geometry<Mapping>& geometry_;
    const u64* bitmap_;
    u64 word_ = 0;
    u64 waiting_ = 0;  // slots that are found, and in no batch yet
    u64 slots_[MOST_IN_BATCH];
};

// visit(part, units, n, first) for batches of the occupied units of every part, in the order of their slots.
// `first` counts the units of the same part that came before. A batch lets the caller prefetch the rows that
// it will touch.
template <class Mapping, class Visit>
inline void for_each_batch(const Geometry<Mapping>& geometry, const u64* bitmap, Visit visit) {
    OccupiedUnits<Mapping> batch(geometry, bitmap);
    while (batch.next()) visit(batch.part, batch.units, batch.n, batch.first);
}

}  // namespace zenc
