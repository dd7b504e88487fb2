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
    Room marks, body;      // its own; of this rank's own gradient the marks are a part of the bitmap of all
    u64 uses = 0;          // that are still to come
};

using Several = std::vector<Held*>;
using Numbers = std::initializer_list<i64>;

inline void know_count(Held& held, u64 count) {
    held.at.count = count;
    held.counted = true;
}

// Aligned for the widest loads.
inline u64 aligned(u64 bytes) {
    return (bytes + 15) / 16 * 16;
}

// Memory for the bytes that rooms ask for, aligned ones: what was released, and for all others one
// allocation.
inline void make_rooms(Queue& queue, const std::vector<Room*>& rooms) {
    u64 bytes = 0;
    for (Room* room : rooms) {
        room->at = queue.reuse(room->bytes);
        if (room->at == nullptr) bytes += room->bytes;
    }
    u8* const first = queue.allocate<u8>(bytes);
    if (!queue.ok()) return;
    u8* next = first;
    Room* last = nullptr;
    for (Room* room : rooms) {
        if (room->at != nullptr) continue;
        room->at = next;
        next += room->bytes;
        last = room;
    }
    if (last != nullptr) last->bytes += Queue::whole(bytes) - bytes;
}

// The bytes of a bitmap, with which its ranks begin.
inline u64 bitmap_bytes(const Held& held) {
    return aligned(8 * words_of(held.at.slots));
}

// Whether the index that is there, or comes, is the bitmap.
inline bool index_is_bitmap(const Held& held) {
    return held.indexed && held.at.format == FORMAT_BITMAP;
}

// Room for ranks, and for bitmaps unless their index is one.
inline void make_marks(Queue& queue, const Several& which) {
    std::vector<Room*> rooms;
    for (Held* held : which) {
        const u64 bitmap = index_is_bitmap(*held) ? 0 : bitmap_bytes(*held);
        held->marks.bytes = bitmap + aligned(8 * ranks_of(held->at.slots));
        rooms.push_back(&held->marks);
    }
    make_rooms(queue, rooms);
    if (!queue.ok()) return;
    for (Held* held : which) {
        const bool in_index = index_is_bitmap(*held);
        held->at.bitmap = reinterpret_cast<u64*>(in_index ? held->at.index : held->marks.at);
        held->at.ranks = reinterpret_cast<u64*>(held->marks.at + (in_index ? 0 : bitmap_bytes(*held)));
    }
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
    std::vector<Room*> rooms;
    for (Held* held : which) {
        held->body.bytes = aligned(body_bytes(*held, held->asked, unit_bytes));
        rooms.push_back(&held->body);
    }
    make_rooms(queue, rooms);
    if (!queue.ok()) return;
    for (Held* held : which) {
        const WireLayout layout = layout_of(*held, held->asked, unit_bytes);
        Segment& at = held->at;
        at.format = layout.format;
        at.actual = held->roomy ? reinterpret_cast<u64*>(held->body.at) : nullptr;
        at.index = held->body.at + head_bytes(*held);
        at.values = at.index + layout.index_bytes;
    }
}

// The bitmap is in the index by now: its own memory is for others.
inline void drop_bitmap(Queue& queue, Held& held) {
    if (held.marks.bytes == 0) return;
    const u64 bytes = bitmap_bytes(held);
    queue.release(Room{held.marks.at, bytes});
    held.marks = {held.marks.at + bytes, held.marks.bytes - bytes};
    held.at.bitmap = reinterpret_cast<u64*>(held.at.index);
}

// Some of its memory, for others. Nothing uses it any more.
inline void release(Queue& queue, Room& room) {
    queue.release(room);
    room = {};
}

// The same for all of it.
inline void release(Queue& queue, Held& held) {
    release(queue, held.marks);
    release(queue, held.body);
}

}  // namespace zenc
