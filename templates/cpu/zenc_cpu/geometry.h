// How a tensor of units x width is cut: unit -> slot by the mapping, slot -> (part, word, bit) by the parts.
#pragma once

#include "zenc/permutation.h"
#include "zenc_cpu/bits.h"

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

template <class Mapping>
struct Geometry {
    struct Place {
        u64 word;
        u64 bit;  // as a mask
    };

    u64 units;
    u64 width;
    u64 parts;
    Divider part_slots;
    u64 part_words;
    Mapping mapping;

    // units * width < 2^62 and parts >= 1 are the caller's care.
    Geometry(i64 units_, i64 width_, i64 parts_, const Mapping& mapping_)
        : units(static_cast<u64>(units_)),
          width(static_cast<u64>(width_)),
          parts(static_cast<u64>(parts_)),
          part_slots(ceil_divide(units, parts)),
          part_words(units == 0 ? 0 : words_of(part_slots.divisor)),
          mapping(mapping_) {}

    u64 words() const { return parts * part_words; }
    u64 first_slot(u64 part) const { return part * part_slots.divisor; }

    u64 slots_of(u64 part) const {
        const u64 first = first_slot(part);
        const u64 left = first < units ? units - first : 0;
        return left < part_slots.divisor ? left : part_slots.divisor;
    }

    // Where the bit of a unit is, for unit < units.
    Place place(u64 unit) const {
        const u64 slot = mapping.slot(unit);
        const u64 part = part_slots.quotient(slot);
        const u64 local = slot - part * part_slots.divisor;
        return {part * part_words + local / 64, 1ULL << (local % 64)};
    }
};

// out[i] = slot of units[i]. Returns 0, or -1 - i if units[i] is out of range.
template <class Mapping>
inline i64 slots_of_units(const Geometry<Mapping>& geometry, const i64* units, u64 n, i64* out) {
    for (u64 i = 0; i < n; ++i) {
        if (static_cast<u64>(units[i]) >= geometry.units) return -1 - static_cast<i64>(i);
        out[i] = static_cast<i64>(geometry.mapping.slot(static_cast<u64>(units[i])));
    }
    return 0;
}

// out[i] = unit of slots[i]. Returns 0, or -1 - i if slots[i] is out of range.
template <class Mapping>
inline i64 units_of_slots(const Geometry<Mapping>& geometry, const i64* slots, u64 n, i64* out) {
    for (u64 i = 0; i < n; ++i) {
        if (static_cast<u64>(slots[i]) >= geometry.units) return -1 - static_cast<i64>(i);
        out[i] = static_cast<i64>(geometry.mapping.unit(static_cast<u64>(slots[i])));
    }
    return 0;
}

// visit(part, units, n, first) for batches of the occupied units of every part, in the order of their slots.
// `first` counts the units of the same part that came before. A batch lets the caller prefetch the rows that
// it will touch.
template <class Mapping, class Visit>
inline void for_each_batch(const Geometry<Mapping>& geometry, const u64* bitmap, Visit visit) {
    constexpr u64 BATCH = 64;
    u64 units[BATCH + 64];
    for (u64 part = 0; part < geometry.parts; ++part) {
        const u64* const words = bitmap + part * geometry.part_words;
        const u64 slots = geometry.slots_of(part);
        u64 first = 0;
        u64 n = 0;
        u64 slot = geometry.first_slot(part);
        for (u64 w = 0; w < words_of(slots); ++w, slot += 64) {
            for_each_bit(words[w], [&](u64 bit) { units[n++] = geometry.mapping.unit(slot + bit); });
            if (n < BATCH) continue;
            visit(part, units, n, first);
            first += n;
            n = 0;
        }
        if (n != 0) visit(part, units, n, first);
    }
}

}  // namespace zenc
