// Segments to bytes and back. decode_index trusts nothing: what it accepts is a bitmap of exactly `count`
// slots. Messages of one segment, whole: sealed by the sender, opened by the receiver; all others are put
// together and taken apart by the run time, segment by segment.
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

// A message of one segment that is to be sent. Its values lie in `frame` already, behind the room for headers
// and index; so does the index, if `has_index`: then the message is one that came, and is passed on.
struct Outgoing {
    u8* frame;
    const u64* bitmap;
    i64 slots, count, value_bytes, part, origin, format, has_index;
};

// Completes a message: both headers, the index, and the zeros behind the values. `head` is a MessageHeader
// with all that the messages of a call share. Returns 0 or a Status.
inline i64 seal(const MessageHeader& head, const Outgoing& out) {
    const u64 slots = static_cast<u64>(out.slots), count = static_cast<u64>(out.count);
    const u64 value_bytes = static_cast<u64>(out.value_bytes), index = index_bytes(out.format, slots, count);
    u8* const body = out.frame + FRAME_BYTES;
    if (!out.has_index) {
        const i64 written = encode_index(out.format, out.bitmap, slots, count, body);
        if (written < 0) return written;
        clear_bytes(body + index + value_bytes, padded(value_bytes) - value_bytes);
    }
    MessageHeader message = head;
    message.segments = 1;
    message.bytes = FRAME_BYTES + index + padded(value_bytes);
    const SegmentHeader segment = {static_cast<u32>(out.part), static_cast<u32>(out.origin << 8 | out.format),
                                   count};
    copy_bytes(out.frame, &message, sizeof message);
    copy_bytes(out.frame + sizeof message, &segment, sizeof segment);
    return 0;
}

// Seals the messages of a step.
inline i64 seal_all(const u8* head, const Outgoing* out, u64 n) {
    MessageHeader shared;
    copy_bytes(&shared, head, sizeof shared);
    for (u64 i = 0; i < n; ++i)
        if (const i64 status = seal(shared, out[i])) return status;
    return 0;
}

// Whether two headers are of one call and one version: all but segments, sender and bytes are the same.
inline bool same_call(const MessageHeader& a, const MessageHeader& b) {
    for (int i = 0; i < 8; ++i)
        if (reinterpret_cast<const u8*>(&a)[i] != reinterpret_cast<const u8*>(&b)[i]) return false;
    return a.call == b.call && a.signature == b.signature && a.units == b.units;
}

// The first packet of a message of one segment that a step expects.
struct Incoming {
    const u8* message;
    i64 sender, part, slots;
    i64 capacity;  // bytes that are there
};

// The findings of `open`; all 0 for a message that it leaves to the run time.
struct Opened {
    i64 bytes, count, origin, format, values;  // values: their offset in the message
};

// Opens a message that is all there and carries one segment of units of `unit_bytes`.
// Trusts nothing. Defines words_of(slots) words of the bitmap. Any other message the run time looks at more
// closely: it may be a longer one, or a wrong one.
inline Opened open(const MessageHeader& head, const Incoming& in, u64 unit_bytes, u64* bitmap) {
    const u64 capacity = static_cast<u64>(in.capacity);
    if (capacity < FRAME_BYTES) return {};
    MessageHeader message;
    SegmentHeader segment;
    copy_bytes(&message, in.message, sizeof message);
    copy_bytes(&segment, in.message + sizeof message, sizeof segment);
    const u64 slots = static_cast<u64>(in.slots);
    if (!same_call(message, head) || message.sender != in.sender || message.segments != 1) return {};
    if (message.bytes > capacity || segment.part != in.part || segment.count > slots) return {};
    const i64 format = segment.origin_and_format & 0xff;
    if (format > LAST_FORMAT || segment.count > capacity / (unit_bytes ? unit_bytes : 1)) return {};
    const u64 index = index_bytes(format, slots, segment.count);
    if (message.bytes != FRAME_BYTES + index + padded(segment.count * unit_bytes)) return {};
    if (decode_index(format, in.message + FRAME_BYTES, slots, segment.count, bitmap) != 0) return {};
    return {static_cast<i64>(message.bytes), static_cast<i64>(segment.count), segment.origin_and_format >> 8,
            format, static_cast<i64>(FRAME_BYTES + index)};
}

// Opens the messages of a step; the bitmap of each has `words` words, those beyond its slots 0.
inline void open_all(const u8* head, const Incoming* in, u64 n, u64 unit_bytes, u64* bitmaps, u64 words,
                     Opened* found) {
    MessageHeader shared;
    copy_bytes(&shared, head, sizeof shared);
    for (u64 i = 0; i < n; ++i) {
        u64* const bitmap = bitmaps + i * words;
        const u64 used = words_of(static_cast<u64>(in[i].slots));
        clear_bytes(bitmap + used, (words - used) * sizeof(u64));
        found[i] = open(shared, in[i], unit_bytes, bitmap);
    }
}

}  // namespace zenc
