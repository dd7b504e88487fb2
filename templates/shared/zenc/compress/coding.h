// Codes by what host and kernels of a GPU hand to each other: the parameters of one, the bytes that it takes,
// and the values of a segment.
#pragma once

#include "zenc/compress/coder.h"
#include "zenc/compress/codes.h"
#include "zenc/formats.h"

namespace zenc {

constexpr i64 NOT_CODED = -1;

// A code by its number and parameters, as zenc/wire/codes.py has them.
struct Coding {
    i64 number = NOT_CODED;
    i64 levels = 0;
    i64 bits = 0;
    i64 block = 0;
};

ZENC_HD inline bool has_scales(const Coding& code) {
    return code.block > 1;
}

// Values whose scales a warp finds before it encodes them: whole blocks and windows. 0 if they are too many.
ZENC_HD inline u64 span_of(const Coding& code) {
    constexpr u64 MOST = 1 << 14;
    const u32 window = code.number == TERNARY_CODE ? TRIT_WINDOW : PACKED_WINDOW;
    u64 span = static_cast<u64>(code.block);
    while (span <= MOST && static_cast<u32>(span) % window != 0) span += static_cast<u64>(code.block);
    return span <= MOST ? span : 0;
}

// The bytes of n values, or the most that there can be; not padded.
ZENC_HD inline u64 encoded_bytes(const Coding& code, u64 n) {
    if (code.number == FIXED_CODE)
        return n == 0 ? 0 : sizeof(int) + packed_bytes(static_cast<u64>(code.bits), n);
    if (code.number == ASC_CODE) {
        const u64 bits = static_cast<u64>(code.bits), chunks = ceil_divide(n, CHUNK);
        const u64 packed = n / CHUNK * packed_bytes(bits, CHUNK) + packed_bytes(bits, n % CHUNK);
        return n == 0 ? 0 : CODED_HEADER + chunks * sizeof(u32) + packed;
    }
    if (!has_scales(code)) return packed_bytes(static_cast<u64>(code.bits), n);
    const u64 scales = ceil_divide(n, static_cast<u64>(code.block)) * sizeof(float);
    if (code.number == TERNARY_CODE) return scales + ceil_divide(n, TRITS);
    return (code.number == ONEBIT_CODE ? 2 : 1) * scales + packed_bytes(static_cast<u64>(code.bits), n);
}

ZENC_HD inline bool has_one_step(const Coding& code) {
    return code.number == FIXED_CODE || code.number == ASC_CODE;
}

// Whether all values of a block are as far from 0 as one of its scales, or 0.
ZENC_HD inline bool scales_tell(const Coding& code) {
    return code.number == SIGN_CODE || code.number == VOTE_CODE || code.number == ONEBIT_CODE ||
           code.number == TERNARY_CODE;
}

// Bytes for a chunk before it is known how many it takes.
ZENC_HD inline u64 chunk_room(const Coding& code) {
    return padded(packed_bytes(static_cast<u64>(code.bits), CHUNK));
}

constexpr u64 SETS_LOSS = 1;     // `loss` is undefined before
constexpr u64 CLEARS_SIGNS = 2;  // each -0 of `values` counts as +0

// The values of a segment, as values and as bytes: one of a table.
struct CodedRow {
    void* values;  // [n]; only read where they are encoded
    u8* bytes;     // padded(encoded_bytes), aligned to 8
    float* loss;   // [n], to which is added what the bytes do not say; or null
    u64 n;
    u64 key;     // of random words
    u64* facts;  // of one with a step for all values: [2], what is found out of them; 0 before. Where it is
                 // read: 1 for bytes that nobody has written
    u8* work;    // of chunks: [chunks, chunk_room]
    Coding code;
    void* meaning;        // [n]: what the bytes that are written mean; `values`, other memory, or null
    u64 how;              // SETS_LOSS and CLEARS_SIGNS
    const float* before;  // [n], added to `values` where they are read; or null
};

static_assert(sizeof(CodedRow) == 112, "rows are uploaded as they are");

}  // namespace zenc
