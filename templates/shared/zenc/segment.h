// Descriptors of segments, tables of a launch, and control messages, which host and kernels of a GPU hand to
// each other. Control messages go ahead of bodies, whose sizes their senders alone know:
//
//     control = ControlHeader, and of every segment of the message its count
#pragma once

#include "zenc/bits.h"
#include "zenc/constants.h"

namespace zenc {

// The segments [first, first + number) of a table: those that one target is made of.
struct Pieces {
    u64 first;
    u64 number;
};

// The findings of the blocks that decode a segment together. Cleared before.
struct Check {
    u64 fault;    // the complement of 8 * position - status, for the first fault; 0: none
    u64 count;    // slots found
    u64 arrived;  // blocks that are done
};

// The tables of a launch, by value, where they have room here: then a kernel's pointer to a table is its
// offset. It begins at a word that is not the first, so that null is null; that one is the offset of an
// Epilogue, or 0.
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
// the first, which is not null, to that one. Without `from` the address of the first is the word. From where
// it goes to: a bell, in memory of the host, which is RUNG when all other rows are there.
struct Gathered {
    const u64* from;
    const u64* first;
    u64* to;
};

constexpr u64 RUNG = 1;

// Parts of an epilogue, in their order. A kernel can do some of them, and all that come behind these.
enum class Ending { RANK = 1, ADMIT, GATHER, NONE };

// The work of a launch's last block, once all others are done; none for a table without entries.
struct Epilogue {
    u64* arrived;  // blocks that are done: 0 before

    const Segment* ranked;  // `rank`
    i64 number_ranked;

    const Segment* admitted;  // `admit`
    i64 number_admitted;
    const Expected* words;
    i64 number_of_words;
    u64* raised;

    const Gathered* rows;  // `gather`
    i64 number_of_rows;
};

}  // namespace zenc
