// The layout of packed integers: zenc/wire/codes.py says it in words.
#pragma once

#include "zenc/config.h"

namespace zenc {

constexpr u64 PACKED_LANES = 32;
constexpr u64 PACKED_ROWS = 32;
constexpr u64 PACKED_WINDOW = PACKED_LANES * PACKED_ROWS;
constexpr u64 TRITS = 5;
constexpr u64 TRIT_WINDOW = PACKED_LANES * TRITS;
constexpr u64 TRANSFORMED = 1024;  // values at most that a transform makes of as many

ZENC_HD inline u64 packed_bytes(u64 bits, u64 count) {
    return (bits * count + 7) / 8;
}

// Adds a trit to a byte: the first of five counts most.
ZENC_HD inline u32 add_trit(u32 byte, u32 trit) {
    return byte * 3 + trit;
}

// The byte as a fraction of 256, rounded up: each trit is what a product by 3 carries out of it.
ZENC_HD inline u32 trits_of(u32 byte) {
    return (byte * 256 + 242) / 243;
}

ZENC_HD inline u32 next_trit(u32& fraction) {
    const u32 product = fraction * 3;
    fraction = product & 255;
    return product >> 8;
}

}  // namespace zenc
