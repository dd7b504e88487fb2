// What a rank holds: segments on the device, and how far the host knows them.
#pragma once

#include <initializer_list>
#include <vector>

#include "zenc_host/queue.h"

namespace zenc {

// A segment's bitmap and ranks are there from the beginning (on the stream). Its count becomes known when it
// has crossed to the host; its values are made after that, in a body of just the right size.
struct Held {
    Segment at = {};
    i64 asked = FORMAT_DENSE;  // what it is sent in first; dense, which has no index, if it is not sent
    bool counted = false;
    bool valued = false;
    bool indexed = false;  // the index is written, in at.format
};

using Several = std::vector<Held*>;
using Numbers = std::initializer_list<i64>;

inline void know_count(Held& held, u64 count) {
    held.at.count = count;
    held.counted = true;
}

// Room for bitmaps and ranks of their own.
inline void make_marks(Queue& queue, const Several& which) {
    u64 words = 0;
    for (const Held* held : which) words += words_of(held->at.slots) + words_with_total(held->at.slots);
    u64* next = queue.allocate<u64>(words);
    if (!queue.ok()) return;
    for (Held* held : which) {
        held->at.bitmap = next;
        held->at.before = next + words_of(held->at.slots);
        next = held->at.before + words_with_total(held->at.slots);
    }
}

// Bodies are aligned for the widest loads.
inline u64 aligned(u64 bytes) {
    return (bytes + 15) / 16 * 16;
}

// Room for index and values of segments whose counts are known, in the format that each is asked for.
inline void make_bodies(Queue& queue, const Several& which, u64 unit_bytes) {
    std::vector<WireLayout> layouts;
    u64 bytes = 0;
    for (const Held* held : which) {
        layouts.push_back(wire_layout(held->asked, held->at.slots, held->at.count, unit_bytes));
        bytes += aligned(layouts.back().body_bytes);
    }
    u8* next = queue.allocate<u8>(bytes);
    if (!queue.ok()) return;
    for (u64 i = 0; i < which.size(); ++i) {
        Segment& at = which[i]->at;
        at.format = layouts[i].format;
        at.index = next;
        at.values = next + layouts[i].index_bytes;
        next += aligned(layouts[i].body_bytes);
    }
}

}  // namespace zenc
