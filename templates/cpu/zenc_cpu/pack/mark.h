// Marking: a bit for every occupied slot, from unit ids or from the values of a dense tensor.
#pragma once

#include "zenc_cpu/primitives/element_blocks.h"
#include "zenc_cpu/primitives/value_rows.h"

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

// Bit i: byte i of the eight is 1; each is 0 or 1. The product moves bit 8 i to bit 56 + i, and no two terms
// meet there.
inline u64 pack_flags(const u8* flags) {
    u64 bytes;
    std::memcpy(&bytes, flags, 8);
    return (bytes * 0x0102040810204080ULL) >> 56;
}

// Bit i: row i, of one value, is not zero; for n <= 64 rows.
template <class Bits>
inline u64 nonzero_word(const Bits* rows, u64 n, One) {
#if ZENC_LANES
    if (n == 64) return nonzero_lanes(rows);
#endif
    u8 flags[64] = {};
    if (n == 64)
        for (u64 i = 0; i < 64; ++i)
            flags[i] = magnitude_bits(rows[i]) != 0;  // the constant length vectorises
    else
        for (u64 i = 0; i < n; ++i) flags[i] = magnitude_bits(rows[i]) != 0;
    u64 word = 0;
    for (u64 byte = 0; byte < 8; ++byte) word |= pack_flags(flags + 8 * byte) << (8 * byte);
    return word;
}

template <class Bits>
inline bool nonzero_row(const Bits* row, u64 width) {
    constexpr u64 CHUNK = 128 / sizeof(Bits);  // most occupied rows show it in their first two cache lines
    u64 i = 0;
    for (; i + CHUNK <= width; i += CHUNK) {
        Bits any = 0;
        for (u64 k = 0; k < CHUNK; ++k) any |= row[i + k];
        if (magnitude_bits(any) != 0) return true;
    }
    Bits any = 0;
    for (; i < width; ++i) any |= row[i];
    return magnitude_bits(any) != 0;
}

template <class Bits>
inline u64 nonzero_word(const Bits* rows, u64 n, u64 width) {
    u64 word = 0;
    for (u64 i = 0; i < n; ++i) word |= static_cast<u64>(nonzero_row(rows + i * width, width)) << i;
    return word;
}

// Parts are ranges of the tensor: the words are built in place.
template <class Bits, class Width>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<Contiguous>& geometry, Width width, const Bits* tensor,
                                       u64* bitmap) {
    u64 total = 0;
    for (u64 part = 0; part < geometry.parts; ++part) {
        const u64 slots = geometry.slots_of(part);
        const Bits* const rows = tensor + geometry.first_slot(part) * width;
        for (u64 w = 0; w < geometry.part_words; ++w) {
            const u64 first = 64 * w;
            const u64 n = first >= slots ? 0 : slots - first < 64 ? slots - first : 64;
            const u64 word = n == 0 ? 0 : nonzero_word(rows + first * width, n, width);
            total += population(word);
            *bitmap++ = word;
        }
    }
    return static_cast<i64>(total);
}

// Rows that are occupied are found in the order of the tensor, and marked in batches.
template <class Bits>
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<Permutation>& geometry, u64 width, const Bits* tensor,
                                       u64* bitmap) {
    u64 units[MOST_IN_BATCH];
    u64 slots[MOST_IN_BATCH];
    u64 pending = 0;
    u64 total = 0;
    clear_bytes(bitmap, geometry.words() * 8);
    for (u64 first = 0; first < geometry.units; first += 64) {
        const u64 n = geometry.units - first < 64 ? geometry.units - first : 64;
        pending += append_bits<4>(nonzero_word(tensor + first * width, n, width), first, units + pending);
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
ZENC_SHARED_CODE inline i64 mark_dense(const Geometry<Permutation>& geometry, One, const Bits* tensor,
                                       u64* bitmap) {
    u64 total = 0;
    clear_bytes(bitmap, geometry.words() * 8);
    with_block(geometry, [&](auto kind) {
        using Block = decltype(kind);
        u64 units[MOST_IN_BATCH], slots[MOST_IN_BATCH], parts[MOST_IN_BATCH], bits[MOST_IN_BATCH];
        Block blocks[MOST_IN_BATCH];
        for (u64 unit = 0; unit < geometry.units;) {
            u64 n = 0;
            for (; unit < geometry.units && n < BATCH; unit += 64) {
                const u64 left = geometry.units - unit;
                const u64 word = nonzero_word(tensor + unit, left < 64 ? left : 64, One());
                total += population(word);
                for (u64 first = 0; first < 64; first += UNITS_OF<Block>) {
                    units[n] = unit + first;
                    blocks[n] = static_cast<Block>(word >> first);
                    n += blocks[n] != 0;  // a branch would be mispredicted
                }
            }
            slots_of_batch(geometry.mapping, units, n, slots);
            locate(geometry, slots, n, parts, bits);
            for (u64 i = 0; i < n; ++i) store_block(bitmap, bits[i], blocks[i]);
        }
    });
    return static_cast<i64>(total);
}

// Marks the units of tensor [units, width] that hold anything but +0 and -0 (so NaN counts), and clears all
// other bits. Returns the marked, or NO_MEMORY.
template <class T, class Mapping>
inline i64 mark_tensor(const Geometry<Mapping>& geometry, const T* tensor, u64* bitmap) {
    const auto* const bits = reinterpret_cast<const typename Type<T>::Bits*>(tensor);
    return with_width(geometry.width, [&](auto width) { return mark_dense(geometry, width, bits, bitmap); });
}

}  // namespace zenc
