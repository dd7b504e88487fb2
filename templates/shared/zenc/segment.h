// What kernels of a GPU see of a segment, and the launch that all of them share.
#pragma once

#include "zenc/ranks.h"

namespace zenc {

// Threads of every block of every kernel.
constexpr u32 THREADS = 256;

// One part's occupied slots and their values. Pointers are addresses of the device; those that a kernel has
// no use for are null. A segment without a bitmap is encoded: its slots are in its index alone.
struct Segment {
    u64* bitmap;   // [words_of(slots)]: occupied local slots; bits beyond `slots` are 0
    u64* ranks;    // [ranks_of(slots)]: those of the bitmap; they may count from any number on. Of an encoded
                   // segment those of the high words of elias_fano
    u8* index;     // the index part of its body, aligned to 8
    void* values;  // [count, width]: ascending slots, aligned to 8
    u64 slots;     // of the part
    u64 count;     // occupied slots
    i64 format;    // FORMAT_...: how `index` is written
    u64 part;
    u64* actual;  // null; or the number of occupied slots, ahead of the index, where `count` is only the
                  // room that there is for them (docs/adr/0024-capacity-mode.md)
    const i64* status;  // of an encoded segment: null, or what decoding found; unless 0 it has no slots
};

// The segments [first, first + number) of a table: those that one target is made of.
struct Pieces {
    u64 first;
    u64 number;
};

// What the blocks that decode one segment find out together. Cleared before.
struct Check {
    u64 fault;    // the complement of 8 * position - status, for the first fault; 0: none
    u64 count;    // slots found
    u64 arrived;  // blocks that are done
};

static_assert(sizeof(Segment) == 80 && sizeof(Pieces) == 16 && sizeof(Check) == 24,
              "descriptors are uploaded as they are");

}  // namespace zenc
