// The headers of messages, agreed between all ranks and targets; zenc/runtime/cpu/headers.py has their twin.
//
//     message = MessageHeader, SegmentHeader of every segment, body of every segment (formats.h)
#pragma once

#include "zenc/formats.h"

namespace zenc {

struct MessageHeader {
    u8 magic[4];
    u8 version[2];
    u8 nothing[2];
    u32 segments;
    u32 sender;
    u64 bytes;  // of the whole message
    u64 call;
    u64 signature;
    u64 units;
};

struct SegmentHeader {
    u32 part;
    u32 origin_and_format;  // origin << 8 | format
    u64 count;
};

static_assert(sizeof(MessageHeader) == 48 && sizeof(SegmentHeader) == 16, "headers have no gaps");

// The headers of a message that carries one segment.
constexpr u64 FRAME_BYTES = sizeof(MessageHeader) + sizeof(SegmentHeader);

}  // namespace zenc
