// Marking: a bit for every occupied slot, from unit ids or from the values of a dense tensor.
#pragma once

#include "zenc_cpu/geometry.h"
#include "zenc_cpu/values.h"

namespace zenc {

// Sets the bits of the slots of n units and clears all others. Returns 0, or -1 - i if units[i] is out of
// range.
template <class Mapping>
inline i64 mark_units(const Geometry<Mapping>& geometry, const i64* units, u64 n, u64* bitmap) {
    std::memset(bitmap, 0, geometry.words() * 8);
    for (u64 i = 0; i < n; ++i) {
        const u64 unit = static_cast<u64>(units[i]);  // a negative id is a huge one
        if (unit >= geometry.units) return -1 - static_cast<i64>(i);
        const auto place = geometry.place(unit);
        bitmap[place.word] |= place.bit;
    }
    return 0;
}

// Bit i: one of the values of row i is not zero, for n <= 64 rows of one value.
template <class Bits>
inline u64 nonzero_word(const Bits* rows, u64 n, One) {
    u64 word = 0;
    if (n < 64) {
        for (u64 i = 0; i < n; ++i) word |= static_cast<u64>(magnitude_bits(rows[i]) != 0) << i;
        return word;
    }
    for (u64 i = 0; i < 64; ++i) word |= static_cast<u64>(magnitude_bits(rows[i]) != 0) << i;
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

// Marks the units that hold anything but +0 and -0 (so NaN counts), and clears all other bits. Returns the
// marked.
template <class Bits, class Width, class Mapping>
inline u64 mark_dense(const Geometry<Mapping>& geometry, Width width, const Bits* tensor, u64* bitmap) {
    u64 total = 0;
    if constexpr (Mapping::IS_IDENTITY) {
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
    } else {
        std::memset(bitmap, 0, geometry.words() * 8);
        for (u64 first = 0; first < geometry.units; first += 64) {
            const u64 n = geometry.units - first < 64 ? geometry.units - first : 64;
            const u64 word = nonzero_word(tensor + first * width, n, width);
            total += population(word);
            for_each_bit(word, [&](u64 bit) {
                const auto place = geometry.place(first + bit);
                bitmap[place.word] |= place.bit;
            });
        }
    }
    return total;
}

// tensor [units, width] of any element type: only its bits matter.
template <class T, class Mapping>
inline u64 mark_tensor(const Geometry<Mapping>& geometry, const T* tensor, u64* bitmap) {
    const auto* const bits = reinterpret_cast<const typename Type<T>::Bits*>(tensor);
    return with_width(geometry.width, [&](auto width) { return mark_dense(geometry, width, bits, bitmap); });
}

}  // namespace zenc
