// The bits of up to 64 numbers, values or rows that are not zero, in a word.
#pragma once

#include <type_traits>

#include "zenc/values.h"
#include "zenc_cpu/primitives/lane_geometry.h"
#include "zenc_cpu/primitives/lanes.h"

namespace zenc {

// Bit i: byte i of the eight is 1; each is 0 or 1. The product moves bit 8 i to bit 56 + i, and no two terms
// meet there.
inline u64 pack_flags(const u8* flags) {
    u64 bytes;
    std::memcpy(&bytes, flags, 8);
    return (bytes * 0x0102040810204080ULL) >> 56;
}

// Bit i: numbers[i] & mask != 0; for n <= 64 numbers.
template <class Bits>
inline u64 nonzero_word(const Bits* numbers, u64 n, Bits mask) {
    u64 word = 0;
#if ZENC_LANES
    constexpr u64 NUMBER = 64 / sizeof(Bits);
    if (n == 64) {
#pragma GCC unroll 8
        for (u64 i = 0; i < 64; i += NUMBER) word |= test_lanes(numbers + i, mask) << i;
        return word;
    }
#endif
    u8 flags[64] = {};
    if (n == 64)
        for (u64 i = 0; i < 64; ++i) flags[i] = (numbers[i] & mask) != 0;  // the constant length vectorises
    else
        for (u64 i = 0; i < n; ++i) flags[i] = (numbers[i] & mask) != 0;
    for (u64 byte = 0; byte < 8; ++byte) word |= pack_flags(flags + 8 * byte) << (8 * byte);
    return word;
}

template <class Bits>
constexpr Bits SIGN = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));

// The bits that any value of a row has; of one that is not zero, some of them.
template <class Bits>
inline Bits any_bits(const Bits* row, u64 width) {
    constexpr u64 CHUNK = 128 / sizeof(Bits);  // most occupied rows show it in their first two cache lines
    Bits any = 0;
    u64 i = 0;
    for (; i + CHUNK <= width && magnitude_bits(any) == 0; i += CHUNK)
        for (u64 k = 0; k < CHUNK; ++k) any |= row[i + k];
    if (magnitude_bits(any) == 0)
        for (; i < width; ++i) any |= row[i];
    return any;
}

// Bit i: row i is not zero, of either sign; for n <= 64 rows.
template <class Bits>
inline u64 occupied_word(const Bits* rows, u64 n, One) {
    return nonzero_word(rows, n, static_cast<Bits>(~SIGN<Bits>));
}

template <class Bits>
inline u64 occupied_word(const Bits* rows, u64 n, u64 width) {
    u64 word = 0;
    for (u64 i = 0; i < n; ++i)
        word |= static_cast<u64>(magnitude_bits(any_bits(rows + i * width, width)) != 0) << i;
    return word;
}

// Values that are -0 become +0. As integers with a sign they are the least that there are.
template <class Bits>
inline void settle(Bits* values, u64 n) {
    using Signed = std::make_signed_t<Bits>;
    constexpr Signed NEGATIVE_ZERO = static_cast<Signed>(SIGN<Bits>);
    Signed least = 0;
    for (u64 i = 0; i < n; ++i) {  // vectorises
        const Signed value = static_cast<Signed>(values[i]);
        least = value < least ? value : least;
    }
    if (least == NEGATIVE_ZERO)
        for (u64 i = 0; i < n; ++i) values[i] = magnitude_bits(values[i]) == 0 ? Bits{0} : values[i];
}

// occupied_word that also turns rows of zeros into +0: a sum in place leaves alone what no rank has.
template <class Bits>
inline u64 settle_word(Bits* rows, u64 n, One) {
    settle(rows, n);
    return occupied_word(rows, n, One());
}

template <class Bits>
inline u64 settle_word(Bits* rows, u64 n, u64 width) {
    u64 word = 0;
    for (u64 i = 0; i < n; ++i, rows += width) {
        const Bits any = any_bits(rows, width);
        word |= static_cast<u64>(magnitude_bits(any) != 0) << i;
        if (any == SIGN<Bits>) clear_bytes(rows, width * sizeof(Bits));
    }
    return word;
}

}  // namespace zenc
