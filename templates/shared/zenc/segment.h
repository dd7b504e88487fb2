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

// The tables of a launch, by value, where they have room here: then a kernel's pointer to a table is its
// offset. It begins at a word that is not the first, so that null is null.
struct Tables {
    u64 words[TABLE_WORDS];

    template <class Entry>
    ZENC_HD const Entry* operator()(const Entry* at) const {
        const u64 offset = reinterpret_cast<u64>(at);
        const bool is_here = offset != 0 && offset < sizeof words;
        return is_here ? reinterpret_cast<const Entry*>(words + offset / 8) : at;
    }
};

static_assert(sizeof(Segment) == 72 && sizeof(Pieces) == 16 && sizeof(Check) == 24,
              "descriptors are uploaded as they are");

}  // namespace zenc
