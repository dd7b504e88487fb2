// Hierarchical hashing (Zen, OSDI 2025, Algorithm 1): h0 chooses the part of a unit, the same on every rank
// and target; h1 .. hk choose its cell in a memory, in which a CPU collects the units of one call part by
// part (zenc_cpu/pack/hash_memory.h). The slot of a unit is its rank among the ascending units of its part:
// these are the offline index sets of Zen's hash bitmap (its Algorithm 2). See
// docs/adr/0013-hierarchical-hash.md.
#pragma once

#include "zenc/formats.h"
#include "zenc/mix.h"

namespace zenc {

// The tables of a hashed mapping, for one number of units and parts, in one array of 64-bit words.
struct HashTables {
    u64* largest;   // 1: slots of the largest part
    u64* sizes;     // [parts]: slots of each part
    u64* starts;    // [parts]: units of the parts before
    u32* local_of;  // [units]: rank of each unit in its part
    u32* unit_at;   // [units]: the ascending units of each part, part by part

    ZENC_HD HashTables(u64 units, u64 parts, u64* words)
        : largest(words),
          sizes(words + 1),
          starts(sizes + parts),
          local_of(reinterpret_cast<u32*>(starts + parts)),
          unit_at(local_of + units) {}

    ZENC_HD static u64 words(u64 units, u64 parts) { return 1 + 2 * parts + units; }

    ZENC_HD void build(const HashFunction& h0, u64 units, u64 parts) const {
        for (u64 part = 0; part < parts; ++part) sizes[part] = 0;
        for (u64 unit = 0; unit < units; ++unit) local_of[unit] = static_cast<u32>(sizes[h0(unit, parts)]++);
        *largest = 0;
        u64 before = 0;
        for (u64 part = 0; part < parts; before += sizes[part++]) {
            starts[part] = before;
            if (sizes[part] > *largest) *largest = sizes[part];
        }
        for (u64 unit = 0; unit < units; ++unit)
            unit_at[starts[h0(unit, parts)] + local_of[unit]] = static_cast<u32>(unit);
    }
};

// Slot = part * largest part + rank in the part: there are gaps behind all parts but the largest.
struct HierarchicalHash {
    static constexpr bool IS_IDENTITY = false;
    static constexpr bool HAS_TABLES = true;
    static constexpr int LANES = 1;

    HashFunction h0;
    u64 parts;
    HashTables tables;
    Divider largest;

    ZENC_HD HierarchicalHash(const HashFunction& h0_, u64 units, u64 parts_, u64* words)
        : HierarchicalHash(h0_, units, parts_, words, Divider(*words)) {}

    // A mapping whose largest part is known, so that the tables need not be at hand.
    ZENC_HD HierarchicalHash(const HashFunction& h0_, u64 units, u64 parts_, u64* words,
                             const Divider& largest_)
        : h0(h0_), parts(parts_), tables(units, parts_, words), largest(largest_) {}

    ZENC_HD u64 block() const { return 1; }
    ZENC_HD u64 part(u64 unit) const { return h0(unit, parts); }
    ZENC_HD u64 slots_of(u64 part) const { return tables.sizes[part]; }
    ZENC_HD u64 slot(u64 part, u64 unit) const { return part * largest.divisor + tables.local_of[unit]; }
    ZENC_HD u64 unit(u64 slot) const {
        const u64 part = largest.quotient(slot);
        return tables.unit_at[tables.starts[part] + slot - part * largest.divisor];
    }

    ZENC_HD void slots(const u64* of, u64* slots_) const { *slots_ = slot(part(*of), *of); }
    ZENC_HD void units_at(const u64* of, u64* units_) const { *units_ = unit(*of); }
};

}  // namespace zenc
