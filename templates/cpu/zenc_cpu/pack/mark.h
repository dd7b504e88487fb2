// Marking: a bit for every occupied slot, from unit ids or from the values of a dense tensor.
#pragma once

#include "zenc_cpu/primitives/element_blocks.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// Sets the bits of the slots of a batch of units, and leaves the slots in `slots` [MOST_IN_BATCH].
template <class Mapping>
ZENC_SHARED_CODE inline void mark_batch(const Geometry<Mapping>& geometry, u64* units, u64 n, u64* bitmap,
                                        u64* slots) {
    u64 parts[MOST_IN_BATCH];
    u64 bits[MOST_IN_BATCH];
    slots_of_batch(geometry.mapping, units, n, slots);
    locate(geometry, slots, n, parts, bits);
    for (u64 i = 0; i < n; ++i) bitmap[bits[i] / 64] |= 1ULL << (bits[i] % 64);
}

// Sets the bits of the slots of n units and clears all others; slots_out[i] = slot of units[i]. Returns 0, or
// -1 - i if units[i] is out of range.
template <class Mapping>
inline i64 mark_units(const Geometry<Mapping>& geometry, const i64* units, u64 n, u64* bitmap,
                      i64* slots_out) {
    clear_bytes(bitmap, geometry.words() * 8);
    return for_each_id_batch(units, n, geometry.units, [&](u64 first, u64* batch, u64 size) {
        u64 slots[MOST_IN_BATCH];
        mark_batch(geometry, batch, size, bitmap, slots);
        copy_bytes(slots_out + first, slots, size * 8);
    });
}

// Parts are ranges of the tensor: the words are built in place.
template <class Bits, class Width, class Mapping, std::enable_if_t<Mapping::IS_IDENTITY, int> = 0>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<Mapping>& geometry, Width width, Bits* tensor,
                                       u64* bitmap) {
    u64 total = 0;
    for (u64 part = 0; part < geometry.parts; ++part) {
        const u64 slots = geometry.slots_of(part);
        Bits* const rows = tensor + first_unit(geometry, part) * width;
        for (u64 w = 0; w < geometry.part_words; ++w) {
            const u64 first = 64 * w;
            const u64 n = first >= slots ? 0 : slots - first < 64 ? slots - first : 64;
            const u64 word = n == 0 ? 0 : settle_word(rows + first * width, n, width);
            total += population(word);
            *bitmap++ = word;
        }
    }
    return static_cast<i64>(total);
}

// Rows that are occupied are found in the order of the tensor, and marked in batches.
template <class Bits>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<PermutedBlocks>& geometry, u64 width, Bits* tensor,
                                       u64* bitmap) {
    u64 units[MOST_IN_BATCH];
    u64 slots[MOST_IN_BATCH];
    u64 pending = 0;
    u64 total = 0;
    clear_bytes(bitmap, geometry.words() * 8);
    for (u64 first = 0; first < geometry.units; first += 64) {
        const u64 n = geometry.units - first < 64 ? geometry.units - first : 64;
        pending += append_bits<4>(settle_word(tensor + first * width, n, width), first, units + pending);
        if (pending < BATCH) continue;
        mark_batch(geometry, units, BATCH, bitmap, slots);
        total += BATCH;
        pending -= BATCH;
        copy_bytes(units, units + BATCH, pending * 8);
    }
    mark_batch(geometry, units, pending, bitmap, slots);
    return static_cast<i64>(total + pending);
}

// Single elements: the bits of a block go to its slots together, of those that have any.
template <class Bits>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<PermutedBlocks>& geometry, One, Bits* tensor,
                                       u64* bitmap) {
    u64 total = 0;
    clear_bytes(bitmap, geometry.words() * 8);
    with_block(geometry, [&](auto kind) {
        using Block = decltype(kind);
        constexpr u64 WORDS = UNITS_OF<Block>;  // of 64 blocks
        const u32* places = geometry.mapping.places;
        for (u64 first = 0; first < geometry.units; first += 64 * WORDS, places += 64) {
            const u64 left = geometry.units - first < 64 * WORDS ? geometry.units - first : 64 * WORDS;
            u64 words[WORDS] = {};
            settle(tensor + first, left);

            for (u64 w = 0; w < words_of(left); ++w) {
                const u64 n = left - 64 * w < 64 ? left - 64 * w : 64;
                for (u64 i = 0; i < n; i += LINE_BYTES / sizeof(Bits))  // of the next 64 blocks
                    __builtin_prefetch(tensor + first + 64 * WORDS + 64 * w + i);
                words[w] = occupied_word(tensor + first + 64 * w, n, One());
                total += population(words[w]);
            }
            const FilledBlocks<Block> filled(words, WORDS);
            for (u64 i = 0; i < filled.n; ++i)
                store_block(bitmap, places[filled.numbers[i]], filled.blocks[filled.numbers[i]]);
        }
    });
    return static_cast<i64>(total);
}

// Marks the units of tensor [units, width] that hold anything but +0 and -0 (so NaN counts), and clears all
// other bits. Rows of zeros become +0. Returns the marked, or NO_MEMORY.
template <class T, class Mapping>
inline i64 mark_tensor(const Geometry<Mapping>& geometry, T* tensor, u64* bitmap) {
    auto* const bits = reinterpret_cast<typename Type<T>::Bits*>(tensor);
    return with_width(geometry.width, [&](auto width) { return mark_dense(geometry, width, bits, bitmap); });
}

}  // namespace zenc
