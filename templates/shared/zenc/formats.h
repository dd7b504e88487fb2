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
#define ZENC_ABI_VERSION 1

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "zenc's wire formats are little endian");
#endif

namespace zenc {

enum Format : i64 { FORMAT_DENSE = 0, FORMAT_COO = 1, FORMAT_BITMAP = 2 };

// What a kernel returns instead of a count, if it can't do its work.
enum Status : i64 {
    UNKNOWN_FORMAT = -1,
    WRONG_COUNT = -2,
    NOT_ASCENDING = -3,
    OUT_OF_RANGE = -4,
    STRAY_BITS = -5,
    NOT_MARKED = -6,
    NO_MEMORY = -7,
};

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
