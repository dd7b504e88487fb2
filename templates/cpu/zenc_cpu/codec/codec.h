// Segments to bytes and back. decode_index trusts nothing: what it accepts is a bitmap of exactly `count`
// slots.
#pragma once

#include "zenc_cpu/codec/blocks.h"
#include "zenc_cpu/codec/elias_fano.h"
#include "zenc_cpu/primitives/bits.h"

namespace zenc {

template <class Index>
inline i64 encode_coo(const u64* bitmap, u64 slots, u64 count, Index* out) {
    const u64 words = words_of(slots);
    const Index* const end = out + count;
    u64 w = 0;
    for (; w < words && end - out >= 64; ++w) out += append_bits<2>(bitmap[w], 64 * w, out);
    for (; w < words; ++w) {  // no room for blind writes
        if (population(bitmap[w]) > static_cast<u64>(end - out)) return WRONG_COUNT;
        for_each_bit(bitmap[w], [&](u64 bit) { *out++ = static_cast<Index>(64 * w + bit); });
    }
    return out == end ? 0 : WRONG_COUNT;
}

// The index part of a segment, padded. Returns its bytes or a Status.
inline i64 encode_index(i64 format, const u64* bitmap, u64 slots, u64 count, u8* out) {
    const u64 bytes = index_bytes(format, slots, count);
    switch (format) {
        case FORMAT_DENSE:
            return count == slots ? 0 : WRONG_COUNT;
        case FORMAT_BITMAP:
            copy_bytes(out, bitmap, bytes);
            return static_cast<i64>(bytes);
        case FORMAT_COO: {
            if (bytes != 0) clear_bytes(out + bytes - 8, 8);
            const i64 status = coo_index_bytes(slots) == 4
                                   ? encode_coo(bitmap, slots, count, reinterpret_cast<u32*>(out))
                                   : encode_coo(bitmap, slots, count, reinterpret_cast<u64*>(out));
            return status < 0 ? status : static_cast<i64>(bytes);
        }
        case FORMAT_ELIAS_FANO: {
            const i64 status = encode_elias_fano(bitmap, slots, count, reinterpret_cast<u64*>(out));
            return status < 0 ? status : static_cast<i64>(bytes);
        }
        default: {
            if (format < FORMAT_BLOCK || format > LAST_FORMAT) return UNKNOWN_FORMAT;
            const Blocks cut = {slots, block_shift(format)};
            const i64 status = encode_blocks(cut, bitmap, count, reinterpret_cast<u64*>(out));
            return status < 0 ? status : static_cast<i64>(bytes);
        }
    }
}

// The body of a segment: index, padding, values, padding. `out` is aligned to 8 bytes. Returns its bytes or a
// Status.
inline i64 encode(i64 format, const u64* bitmap, u64 slots, u64 count, const void* values, u64 value_bytes,
                  u8* out) {
    const i64 index = encode_index(format, bitmap, slots, count, out);
    if (index < 0) return index;
    u8* const body = out + index;
    if (value_bytes != 0) {
        clear_bytes(body + padded(value_bytes) - 8, 8);
        copy_bytes(body, values, value_bytes);
    }
    return index + static_cast<i64>(padded(value_bytes));
}

template <class Index>
inline i64 decode_coo(const Index* in, u64 slots, u64 count, u64* bitmap) {
    u64 least = 0;  // the lowest slot that may come next
    for (u64 i = 0; i < count; ++i) {
        const u64 slot = in[i];
        if (slot < least) return NOT_ASCENDING;
        if (slot >= slots) return OUT_OF_RANGE;
        bitmap[slot / 64] |= 1ULL << (slot % 64);
        least = slot + 1;
    }
    for (u64 i = count; i % (8 / sizeof(Index)) != 0; ++i)
        if (in[i] != 0) return STRAY_BITS;
    return 0;
}

// Rebuilds words_of(slots) words of the bitmap from an index part of index_bytes(format, slots, count) bytes,
// aligned to 8. Returns 0, or the Status that says why the bytes are not the index of `count` slots out of
// `slots`.
inline i64 decode_index(i64 format, const u8* in, u64 slots, u64 count, u64* bitmap) {
    const u64 words = words_of(slots);
    if (count > slots) return WRONG_COUNT;
    switch (format) {
        case FORMAT_DENSE:
            fill_bitmap(bitmap, slots);
            return count == slots ? 0 : WRONG_COUNT;
        case FORMAT_BITMAP:
            if (words == 0) return 0;
            copy_bytes(bitmap, in, words * 8);
            if ((bitmap[words - 1] & ~low_mask(slots - 64 * (words - 1))) != 0) return STRAY_BITS;
            return population(bitmap, words) == count ? 0 : WRONG_COUNT;
        case FORMAT_COO:
            clear_bytes(bitmap, words * 8);
            return coo_index_bytes(slots) == 4
                       ? decode_coo(reinterpret_cast<const u32*>(in), slots, count, bitmap)
                       : decode_coo(reinterpret_cast<const u64*>(in), slots, count, bitmap);
        case FORMAT_ELIAS_FANO:
            return decode_elias_fano(reinterpret_cast<const u64*>(in), slots, count, bitmap);
        default:
            if (format < FORMAT_BLOCK || format > LAST_FORMAT) return UNKNOWN_FORMAT;
            return decode_blocks({slots, block_shift(format)}, reinterpret_cast<const u64*>(in), count,
                                 bitmap);
    }
}

}  // namespace zenc
