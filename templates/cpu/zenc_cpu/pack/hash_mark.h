// Marking under hierarchical hashing: the units of a call go through the hash memory, and their bits are set
// from there. What is marked is what any other way would mark, and so is all that follows.
#pragma once

#include "zenc_cpu/pack/hash_memory.h"
#include "zenc_cpu/pack/mark.h"

namespace zenc {

// Sets the bits of all units in the memory and clears all others.
template <int K>
ZENC_SHARED_CODE inline void mark_memory(const Geometry<HierarchicalHash<K>>& geometry,
                                         const HashMemory<K>& memory, u64* bitmap) {
    clear_bytes(bitmap, geometry.words() * 8);
    const u32* const local_of = geometry.mapping.tables.local_of;
    memory.for_each_batch([&](u64 part, const u32* units, u64 n) {
        u64* const words = bitmap + part * geometry.part_words;
        for (u64 i = 0; i < n; ++i) __builtin_prefetch(local_of + units[i]);
        for (u64 i = 0; i < n; ++i) words[local_of[units[i]] / 64] |= 1ULL << (local_of[units[i]] % 64);
    });
}

// As for other mappings; also NO_MEMORY_FOR_IDS.
template <int K>
ZENC_SHARED_CODE inline i64 mark_units(const Geometry<HierarchicalHash<K>>& geometry, const i64* units, u64 n,
                                       u64* bitmap, i64* slots_out) {
    HashMemory<K> memory(geometry.mapping, n);
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
template <class Bits, class Width, int K>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<HierarchicalHash<K>>& geometry, Width width,
                                       Bits* tensor, u64* bitmap) {
    const u64 words = words_of(geometry.units);
    const Scratch<u64> occupied(words);
    if (occupied.failed()) return NO_MEMORY;
    for (u64 w = 0; w < words; ++w) {
        const u64 left = geometry.units - 64 * w;
        occupied[w] = settle_word(tensor + 64 * w * width, left < 64 ? left : 64, width);
    }
    const u64 n = population(occupied.get(), words);
    HashMemory<K> memory(geometry.mapping, n);
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
