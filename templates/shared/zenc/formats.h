// The bytes that travel, agreed between all ranks and targets: how a segment's index part is laid out.
//
//     body  = index, zeros up to a multiple of 8 bytes, values [count, width], zeros up to a multiple of 8
//     bytes dense:  no index; every slot of the part is there coo:    the occupied local slots, ascending; 4
//     bytes each for parts of up to 2^32 slots, 8 beyond bitmap: bit b of word w = local slot 64 * w + b is
//     occupied; ceil(slots / 64) words
//
// Everything is little endian.
#pragma once

#include "zenc/config.h"

// Changes whenever the bytes on the wire or an entry point of the kernels change; zenc.codegen.toolchain has
// its twin.
#define ZENC_ABI_VERSION 3

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "zenc's wire formats are little endian");
#endif

namespace zenc {

constexpr i64 FORMAT_DENSE = 0;
constexpr i64 FORMAT_COO = 1;
constexpr i64 FORMAT_BITMAP = 2;

// What a kernel returns instead of a count, if it can't do its work.
constexpr i64 UNKNOWN_FORMAT = -1;
constexpr i64 WRONG_COUNT = -2;
constexpr i64 NOT_ASCENDING = -3;
constexpr i64 OUT_OF_RANGE = -4;
constexpr i64 STRAY_BITS = -5;
constexpr i64 NOT_MARKED = -6;
constexpr i64 NO_MEMORY = -7;

ZENC_HD inline u64 padded(u64 bytes) {
    return (bytes + 7) / 8 * 8;
}

ZENC_HD inline u64 words_of(u64 slots) {
    return slots / 64 + (slots % 64 != 0);
}

ZENC_HD inline u64 coo_index_bytes(u64 slots) {
    return slots <= (1ULL << 32) ? 4 : 8;
}

// The bytes of the index part with its padding; 0 for a format that is not known.
ZENC_HD inline u64 index_bytes(i64 format, u64 slots, u64 count) {
    if (format == FORMAT_COO) return padded(count * coo_index_bytes(slots));
    if (format == FORMAT_BITMAP) return words_of(slots) * 8;
    return 0;
}

}  // namespace zenc
