// Messages of one segment, whole: sealed by the sender, opened by the receiver. All others are put together
// and taken apart by the run time, segment by segment.
#pragma once

#include "zenc/message.h"
#include "zenc_cpu/codec.h"

namespace zenc {

// Completes `frame`, in which the values lie behind the room for headers and index: both headers, the index,
// and the zeros behind the values. `head` is a MessageHeader with all that the messages of a call share.
// Returns the bytes of the message, or a Status.
inline i64 seal(const u8* head, i64 format, const u64* bitmap, u64 slots, u64 count, u64 value_bytes,
                u64 part, u64 origin, u8* frame) {
    u8* const body = frame + FRAME_BYTES;
    const i64 index = encode_index(format, bitmap, slots, count, body);
    if (index < 0) return index;
    clear_bytes(body + index + value_bytes, padded(value_bytes) - value_bytes);
    MessageHeader message;
    copy_bytes(&message, head, sizeof message);
    message.segments = 1;
    message.bytes = FRAME_BYTES + static_cast<u64>(index) + padded(value_bytes);
    const SegmentHeader segment = {static_cast<u32>(part),
                                   static_cast<u32>(origin << 8 | static_cast<u64>(format)), count};
    copy_bytes(frame, &message, sizeof message);
    copy_bytes(frame + sizeof message, &segment, sizeof segment);
    return static_cast<i64>(message.bytes);
}

// Whether two headers are of one call and one version: all but segments, sender and bytes are the same.
inline bool same_call(const MessageHeader& a, const MessageHeader& b) {
    for (int i = 0; i < 8; ++i)
        if (reinterpret_cast<const u8*>(&a)[i] != reinterpret_cast<const u8*>(&b)[i]) return false;
    return a.call == b.call && a.signature == b.signature && a.units == b.units;
}

// What `open` found, if it returned 0.
struct Opened {
    i64 bytes, count, origin, format, values;  // values: their offset in the message
};

// Opens a message that is all there, from `sender`, and carries one segment, of `part` with `slots` slots of
// `unit_bytes` each. Trusts nothing. Returns 0, with words_of(slots) words of the bitmap defined; or 1 for
// any other message, which the run time then looks at more closely: it may be a longer one, or a wrong one.
inline i64 open(const u8* head, const u8* in, u64 capacity, u64 sender, u64 part, u64 slots, u64 unit_bytes,
                u64* bitmap, Opened* found) {
    MessageHeader expected, message;
    SegmentHeader segment;
    copy_bytes(&expected, head, sizeof expected);
    copy_bytes(&message, in, sizeof message);
    copy_bytes(&segment, in + sizeof message, sizeof segment);
    if (!same_call(message, expected) || message.sender != sender || message.segments != 1) return 1;
    if (message.bytes > capacity || segment.part != part || segment.count > slots) return 1;
    const i64 format = segment.origin_and_format & 0xff;
    if (format > LAST_FORMAT || segment.count > capacity / unit_bytes) return 1;
    const u64 index = index_bytes(format, slots, segment.count);
    if (message.bytes != FRAME_BYTES + index + padded(segment.count * unit_bytes)) return 1;
    if (decode_index(format, in + FRAME_BYTES, slots, segment.count, bitmap) != 0) return 1;
    *found = {static_cast<i64>(message.bytes), static_cast<i64>(segment.count),
              segment.origin_and_format >> 8, format, static_cast<i64>(FRAME_BYTES + index)};
    return 0;
}

}  // namespace zenc
