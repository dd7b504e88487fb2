// What a rank holds: segments on the device, and how far the host knows them.
#pragma once

#include <initializer_list>
#include <vector>

#include "zenc_host/queue.h"

namespace zenc {

// A segment's bitmap and ranks are there from the beginning (on the stream). Its count becomes known when it
// has crossed to the host; its values are made after that, in a body of just the right size. In capacity mode
// the count is the room, known from the beginning, and the actual count is the head of the body; segments
// that surely have all slots are as ever.
struct Held {
    Segment at = {};
    bool roomy = false;        // its body has a head
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

// How a segment travels when a phase asks for a format; without its head.
inline WireLayout layout_of(const Held& held, i64 asked, u64 unit_bytes) {
    const Segment& at = held.at;
    return (held.roomy ? room_layout : wire_layout)(asked, at.slots, at.count, unit_bytes);
}

inline u64 head_bytes(const Held& held) {
    return held.roomy ? 8 : 0;
}

// Where a body begins, and its bytes.
inline u8* start_of(const Held& held) {
    return held.at.index - head_bytes(held);
}

inline u64 body_bytes(const Held& held, i64 asked, u64 unit_bytes) {
    return head_bytes(held) + layout_of(held, asked, unit_bytes).body_bytes;
}

// Room for index and values of segments whose counts are known, in the format that each is asked for.
inline void make_bodies(Queue& queue, const Several& which, u64 unit_bytes) {
    u64 bytes = 0;
    for (const Held* held : which) bytes += aligned(body_bytes(*held, held->asked, unit_bytes));
    u8* next = queue.allocate<u8>(bytes);
    if (!queue.ok()) return;
    for (Held* held : which) {
        const WireLayout layout = layout_of(*held, held->asked, unit_bytes);
        Segment& at = held->at;
        at.format = layout.format;
        at.actual = held->roomy ? reinterpret_cast<u64*>(next) : nullptr;
        at.index = next + head_bytes(*held);
        at.values = at.index + layout.index_bytes;
        next += aligned(head_bytes(*held) + layout.body_bytes);
    }
}

}  // namespace zenc
