// Geometry of a tensor of units x width: unit -> slot by the mapping, slot -> (part, word, bit) by the parts.
// Parts are cut at multiples of the mapping's block: a block lies in one part, and in one word of its bitmap.
#pragma once

#include "zenc/bits.h"
#include "zenc/formats.h"
#include "zenc/permutation.h"

namespace zenc {

// The slots of the largest part.
template <class Mapping>
ZENC_HD inline u64 largest_part(const Mapping& mapping, u64 units, u64 parts) {
    if constexpr (Mapping::HAS_TABLES)
        return mapping.largest.divisor;
    else
        return ceil_divide(ceil_divide(units, mapping.block()), parts) * mapping.block();
}

// A tensor in parts as the host knows it, whatever the mapping: kernels of a GPU get it by value.
struct Partition {
    u64 units;
    u64 width;
    u64 parts;
    Divider part_slots;
    Permutation permutation;  // of other mappings that of no units
    HashFunction h0;          // of a hashed mapping, here and next
    u64* tables;

    ZENC_HD Partition(u64 units_, u64 width_, u64 parts_, u64 largest, const Permutation& permutation_,
                      const HashFunction& h0_, u64* tables_)
        : units(units_),
          width(width_),
          parts(parts_),
          part_slots(largest),
          permutation(permutation_),
          h0(h0_),
          tables(tables_) {}
};

template <class Mapping>
struct Geometry {
    u64 units;
    u64 width;
    u64 parts;
    Divider part_slots;  // numbers of slots from one part to the next; parts may have fewer
    u64 part_words;      // words of the bitmap from one part to the next
    Mapping mapping;

    // units * width < 2^62 and parts >= 1 are the caller's care.
    ZENC_HD Geometry(i64 units_, i64 width_, i64 parts_, const Mapping& mapping_)
        : units(static_cast<u64>(units_)),
          width(static_cast<u64>(width_)),
          parts(static_cast<u64>(parts_)),
          part_slots(largest_part(mapping_, units, parts)),
          part_words(units == 0 ? 0 : ranked_together(words_of(part_slots.divisor))),
          mapping(mapping_) {}

    ZENC_HD Geometry(const Partition& made, const Mapping& mapping_)
        : units(made.units),
          width(made.width),
          parts(made.parts),
          part_slots(made.part_slots),
          part_words(units == 0 ? 0 : ranked_together(words_of(part_slots.divisor))),
          mapping(mapping_) {}

    ZENC_HD u64 words() const { return parts * part_words; }
    ZENC_HD u64 first_slot(u64 part) const { return part * part_slots.divisor; }
    ZENC_HD u64 end_of_slots() const { return Mapping::HAS_TABLES ? first_slot(parts) : units; }

    ZENC_HD u64 slots_of(u64 part) const {
        if constexpr (Mapping::HAS_TABLES) return mapping.slots_of(part);
        const u64 first = first_slot(part);
        const u64 left = first < units ? units - first : 0;
        return left < part_slots.divisor ? left : part_slots.divisor;
    }

    ZENC_HD u64 part_of(u64 slot) const { return part_slots.quotient(slot); }

    ZENC_HD bool has_slot(u64 slot) const {
        if (slot >= end_of_slots()) return false;
        const u64 part = part_of(slot);
        return slot - first_slot(part) < slots_of(part);
    }

    // Bits of the bitmap of all parts between the slots of one part and those of the next.
    ZENC_HD u64 gap() const { return 64 * part_words - part_slots.divisor; }

    // The number of a slot's bit in the bitmap of all parts, for slots < end_of_slots.
    ZENC_HD u64 bit_of(u64 slot) const { return slot + part_of(slot) * gap(); }

    // The part of a unit, and its slot in there, of a mapping with tables.
    struct Place {
        u64 part, slot;
    };

    ZENC_HD Place place_of(u64 unit) const {
        const u64 part = mapping.part(unit);
        return {part, mapping.slot(part, unit) - first_slot(part)};
    }

    ZENC_HD u64 slot_of(u64 unit) const {
        if constexpr (Mapping::HAS_TABLES)
            return mapping.slot(mapping.part(unit), unit);
        else
            return mapping.slot(unit);
    }
};

}  // namespace zenc
