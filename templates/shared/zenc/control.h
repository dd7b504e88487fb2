// Control messages of a GPU's call: they go ahead of bodies, whose sizes their senders alone know.
//
//     control = ControlHeader, and of every segment of the message its count
//
// The segments themselves are known on both sides, from the proved plan.
#pragma once

#include "zenc/constants.h"

namespace zenc {

struct ControlHeader {
    u64 magic;  // CONTROL_MAGIC
    u64 sender;
    u64 segments;
    u64 call;
    u64 signature;
    u64 units;
};

static_assert(sizeof(ControlHeader) == 48, "headers have no gaps");

ZENC_HD inline u64 control_bytes(u64 segments) {
    return sizeof(ControlHeader) + 8 * segments;
}

// A word on the device, and what it is unless something is wrong.
struct Expected {
    const u64* word;
    u64 right;
};

// A word that a kernel writes to one place from others: *to = *from; or, of ranks, how many bits are set from
// the first, which is not null, to that one. Without `from` the address of the first is the word.
struct Gathered {
    const u64* from;
    const u64* first;
    u64* to;
};

}  // namespace zenc
