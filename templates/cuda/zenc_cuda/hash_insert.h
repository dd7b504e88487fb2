// Marking under hierarchical hashing, as Zen's Algorithm 1 does it on a GPU (OSDI 2025): all threads put the
// units of a call into a memory, part by part, and their bits are set from there. What is marked is what
// mark_units marks, whatever the order of threads.
//
// Two things differ from the paper. A cell is claimed by compare-and-swap, since a write that is read back
// can be lost (docs/adr/0013-hierarchical-hash.md). And a unit that neither memory takes is marked at once:
// no unit is lost, and there is no list that has to grow.
#pragma once

#include "zenc/hash.h"
#include "zenc_cuda/pack.h"

namespace zenc {

// The memory, all 0 before: `rows.words(parts)` words.
struct Collection {
    HashRows rows;
    u64* used;   // [parts]: how many units asked for a serial cell, also those that came too late for one
    u32* cells;  // [parts][rows.cells()]: unit + 1, since 0 is an empty cell

    ZENC_DEVICE Collection(u64* memory, u64 parts, i64 parallel, i64 serial)
        : rows(parallel, serial), used(memory), cells(reinterpret_cast<u32*>(memory + parts)) {}

    ZENC_DEVICE u32* row(u64 part) const { return cells + part * rows.cells(); }

    // The cells of a row that may hold units.
    ZENC_DEVICE u64 filled(u64 part) const {
        return rows.parallel + (used[part] < rows.serial ? used[part] : rows.serial);
    }

    // Adds a unit of `part`, its h0; false if there is no room. A full cell never changes, so that a unit of
    // the parallel memory that comes again finds itself.
    template <int K>
    ZENC_DEVICE bool insert(const HashFamily<K>& family, u64 part, u64 unit) const {
        const u32 mark = static_cast<u32>(unit) + 1;
        u32* const own = row(part);
        for (int i = 1; i <= K && rows.parallel != 0; ++i)
            if (claim(own + family.draw(i, unit, rows.parallel), mark)) return true;
        if (rows.serial == 0) return false;
        const u64 next = atomicAdd(used + part, 1ULL);
        if (next < rows.serial) own[rows.parallel + next] = mark;
        return next < rows.serial;
    }

private:
    // Whether the cell holds `mark` in the end.
    ZENC_DEVICE static bool claim(u32* cell, u32 mark) {
        u32 found = load_relaxed(cell);
        if (found == 0) found = atomicCAS(cell, 0U, mark);
        return found == 0 || found == mark;
    }
};

// Puts n units into the memory; slots and status as of for_each_unit. The bitmap, of which only bits of units
// without room are set, is cleared before.
//
// Reads 8 bytes and an entry of the tables a unit, and up to K cells; writes 8 bytes and a cell.
template <int K>
ZENC_DEVICE void collect_units(const Geometry<HierarchicalHash<K>>& geometry, const i64* ids, i64 n,
                               u64* cells, i64 parallel, i64 serial, const Segment* marked, i64* slots_out,
                               u64* status) {
    const Collection memory(cells, geometry.parts, parallel, serial);
    for_each_unit(geometry, ids, n, slots_out, status, [&](u64 unit, u64 slot) {
        if (!memory.insert(geometry.mapping.family, geometry.part_of(slot), unit))
            set_bit(marked->bitmap, geometry.bit_of(slot));
    });
}

// Sets the bits of all units in the memory. Row y of the grid has part y.
//
// Reads the filled cells, and an entry of the tables for each unit; sets a bit a unit.
template <int K>
ZENC_DEVICE void mark_collected(const Geometry<HierarchicalHash<K>>& geometry, u64* cells, i64 parallel,
                                i64 serial, const Segment* marked, u64* work) {
    const Collection memory(cells, geometry.parts, parallel, serial);
    const u32* const local_of = geometry.mapping.tables.local_of;
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        const u32* const row = memory.row(part);
        u64* const words = marked->bitmap + part * geometry.part_words;
        for (u64 i = thread_of_row(); i < memory.filled(part); i += threads_of_row())
            if (row[i] != 0) set_bit(words, local_of[row[i] - 1]);
    });
    rank_by_last_block(*marked, work);
}

}  // namespace zenc
