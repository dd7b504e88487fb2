// The view that a GPU's kernels have of a segment, and the launch that all of them share.
#pragma once

#include "zenc/ranks.h"

namespace zenc {

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

static_assert(sizeof(Segment) == 72 && sizeof(Pieces) == 16 && sizeof(Check) == 24,
              "descriptors are uploaded as they are");

}  // namespace zenc
