// The memory of hierarchical hashing (Zen, OSDI 2025, Algorithm 1), in which the units of one call are sorted
// by part: a row for each part, of a parallel memory that h1 .. hK point into and a serial one that is filled
// from its beginning. What fits in neither goes to a list that grows, so that no unit is ever lost.
// Marking sets the bits from there: what is marked is what any other way would mark.
#pragma once

#include "zenc/hash.h"
#include "zenc_cpu/pack/mark.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// The memory in which the units of one call are collected: a row of cells for each part.
struct HashRows {
    u64 parallel;  // cells of a row that h1 .. hK point into
    u64 serial;    // cells of a row that are filled from its beginning

    // The rows for n units of all parts together, repeated ones counted each time. Each row has its share of
    // r1 * n parallel and r2 * n serial cells, rounded up.
    HashRows(double r1, double r2, u64 n, u64 parts)
        : parallel(share(r1, n, parts)), serial(share(r2, n, parts)) {}

    u64 cells() const { return parallel + serial; }

private:
    static u64 share(double of_each, u64 n, u64 parts) {
        const double cells = of_each * static_cast<double>(n);
        const u64 whole = static_cast<u64>(cells);
        return ceil_divide(whole + (static_cast<double>(whole) < cells), parts);
    }
};

// The mapping, and the memory of a call: h1 .. hk, and cells for each of its units, of all parts together.
struct HashInMemory : HierarchicalHash {
    HashFunction cells[MOST_CELL_FUNCTIONS];
    int k;
    double r1;  // of the parallel memory
    double r2;  // of the serial memory

    HashInMemory(u64 seed, int k_, double r1_, double r2_, u64 units, u64 parts_, u64* words)
        : HierarchicalHash(HashFunction(seed, 0), units, parts_, words), k(k_), r1(r1_), r2(r2_) {
        for (int i = 0; i < k; ++i) cells[i] = HashFunction(seed, i + 1);
    }
};

// Numbers that grow in number. A kernel never throws: `push` says whether there was memory.
class GrowingList {
public:
    GrowingList() = default;
    ~GrowingList() { std::free(data_); }
    GrowingList(const GrowingList&) = delete;
    GrowingList& operator=(const GrowingList&) = delete;

    u64 size() const { return size_; }
    u32 operator[](u64 i) const { return data_[i]; }

    bool push(u32 number) {
        if (size_ == room_ && !grow()) return false;
        data_[size_++] = number;
        return true;
    }

private:
    bool grow() {
        const u64 room = room_ == 0 ? 64 : 2 * room_;
        void* const larger = std::realloc(data_, room * sizeof(u32));
        if (larger == nullptr) return false;
        data_ = static_cast<u32*>(larger);
        room_ = room;
        return true;
    }

    u32* data_ = nullptr;
    u64 size_ = 0;
    u64 room_ = 0;
};

// The number of units by the place where they ended. A unit that comes again is `repeated` if it is in the
// parallel memory; otherwise it takes a second serial cell, or a second place in the list.
struct HashCounts {
    u64 parallel[MOST_CELL_FUNCTIONS] = {};  // by the function that found the cell
    u64 repeated = 0;
    u64 serial = 0;
    u64 overflow = 0;
};

class HashMemory {
public:
    // The memory for n units of all parts together, repeated ones counted each time.
    HashMemory(const HashInMemory& mapping, u64 n)
        : mapping_(mapping),
          rows_(mapping.r1, mapping.r2, n, mapping.parts),
          cells_(mapping.parts * rows_.cells()),
          used_(mapping.parts) {}

    bool failed() const { return cells_.failed() || used_.failed(); }
    const HashCounts& counts() const { return counts_; }

    // Adds a unit of `part`, its h0. Returns false where there is no memory for the list.
    bool insert(u64 part, u64 unit) {
        const u32 mark = static_cast<u32>(unit) + 1;  // 0 is an empty cell
        u32* const row = cells_.get() + part * rows_.cells();
        for (int i = 0; i < mapping_.k && rows_.parallel != 0; ++i) {
            u32& cell = row[mapping_.cells[i](unit, rows_.parallel)];
            const bool was_empty = cell == 0;
            if (!claim(cell, mark)) continue;
            ++(was_empty ? counts_.parallel[i] : counts_.repeated);
            return true;
        }
        if (used_[part] < rows_.serial) {
            row[rows_.parallel + used_[part]++] = mark;
            ++counts_.serial;
            return true;
        }
        ++counts_.overflow;
        return overflow_.push(static_cast<u32>(unit));
    }

    // Asks for the first cell of a unit, which is inserted soon.
    void prefetch(u64 part, u64 unit) const {
        const u64 cell = rows_.parallel == 0 ? 0 : mapping_.cells[0](unit, rows_.parallel);
        __builtin_prefetch(cells_.get() + part * rows_.cells() + cell, 1);
    }

    // visit(part, units, n) for all units in batches of one part and in no order; some may come several
    // times.
    template <class Visit>
    void for_each_batch(Visit visit) const {
        u32 units[EXTRACTED];
        for (u64 part = 0; part < mapping_.parts; ++part) {
            const u32* const row = cells_.get() + part * rows_.cells();
            const u64 cells = rows_.parallel + used_[part];
            u64 n = 0;
            for (u64 i = 0; i < cells; ++i) {
                units[n] = row[i] - 1;
                n += row[i] != 0;  // a branch here would be mispredicted every other time
                if (n < EXTRACTED) continue;
                visit(part, units, n);
                n = 0;
            }
            visit(part, units, n);
        }
        for (u64 i = 0; i < overflow_.size(); ++i) {
            units[0] = overflow_[i];
            visit(mapping_.part(units[0]), units, 1);
        }
    }

private:
    static constexpr u64 EXTRACTED = 64;

    // Whether the cell holds `mark` in the end. With one thread, reading back is reading. Threads need a
    // compare-and-swap here: with the paper's write and read-back, a thread that saw the cell empty can still
    // write to it after another has read back its own mark.
    static bool claim(u32& cell, u32 mark) {
        if (cell == 0) cell = mark;
        return cell == mark;
    }

    const HashInMemory& mapping_;
    const HashRows rows_;
    Scratch<u32> cells_;
    Scratch<u64> used_;  // serial cells of each row
    GrowingList overflow_;
    HashCounts counts_;
};

// Sets the bits of all units in the memory and clears all others.
ZENC_SHARED_CODE inline void mark_memory(const Geometry<HashInMemory>& geometry, const HashMemory& memory,
                                         u64* bitmap) {
    clear_bytes(bitmap, geometry.words() * 8);
    const u32* const local_of = geometry.mapping.tables.local_of;
    memory.for_each_batch([&](u64 part, const u32* units, u64 n) {
        u64* const words = bitmap + part * geometry.part_words;
        for (u64 i = 0; i < n; ++i) __builtin_prefetch(local_of + units[i]);
        for (u64 i = 0; i < n; ++i) words[local_of[units[i]] / 64] |= 1ULL << (local_of[units[i]] % 64);
    });
}

// mark_units for the hash memory; may return NO_MEMORY_FOR_IDS.
ZENC_SHARED_CODE inline i64 mark_units(const Geometry<HashInMemory>& geometry, const i64* units, u64 n,
                                       u64* bitmap, i64* slots_out) {
    HashMemory memory(geometry.mapping, n);
    if (memory.failed()) return NO_MEMORY_FOR_IDS;
    bool stored = true;
    const i64 status = for_each_id_batch(units, n, geometry.units, [&](u64 first, u64* batch, u64 size) {
        u64 parts[MOST_IN_BATCH];
        for (u64 i = 0; i < size; ++i) {
            parts[i] = geometry.mapping.part(batch[i]);
            memory.prefetch(parts[i], batch[i]);
            __builtin_prefetch(geometry.mapping.tables.local_of + batch[i]);
        }
        for (u64 i = 0; i < size; ++i) {
            stored = memory.insert(parts[i], batch[i]) && stored;
            slots_out[first + i] = static_cast<i64>(geometry.mapping.slot(parts[i], batch[i]));
        }
    });
    if (status < 0) return status;
    if (!stored) return NO_MEMORY_FOR_IDS;
    mark_memory(geometry, memory, bitmap);
    return 0;
}

// The occupied units are counted first: the size of the memory follows from their number.
template <class Bits, class Width>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<HashInMemory>& geometry, Width width, Bits* tensor,
                                       u64* bitmap) {
    const u64 words = words_of(geometry.units);
    const Scratch<u64> occupied(words);
    if (occupied.failed()) return NO_MEMORY;
    for (u64 w = 0; w < words; ++w) {
        const u64 left = geometry.units - 64 * w;
        occupied[w] = settle_word(tensor + 64 * w * width, left < 64 ? left : 64, width);
    }
    const u64 n = population(occupied.get(), words);
    HashMemory memory(geometry.mapping, n);
    if (memory.failed()) return NO_MEMORY;
    bool stored = true;
    for (u64 w = 0; w < words; ++w)
        for_each_bit(occupied[w], [&](u64 bit) {
            const u64 unit = 64 * w + bit;
            stored = memory.insert(geometry.mapping.part(unit), unit) && stored;
        });
    if (!stored) return NO_MEMORY;
    mark_memory(geometry, memory, bitmap);
    return static_cast<i64>(n);
}

}  // namespace zenc
