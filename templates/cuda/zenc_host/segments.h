// State of the segments of a rank: where they are on the device, and how far the host knows them; and the
// programs that name them, what one rank does in every call, known before any (zenc/rank_ir has their
// meaning).
#pragma once

#include <vector>

#include "zenc/compress/coding.h"
#include "zenc_host/queue.h"

namespace zenc {

constexpr i64 NOT_SENT = FORMAT_DENSE;  // values without an index
constexpr i64 NOT_LAID_OUT = -1;        // values that have no place for an index in front of them

// Numbers of segments, or of ranks, in somebody else's memory.
struct Numbers {
    const i64* first;
    u64 n;

    const i64* begin() const { return first; }
    const i64* end() const { return first + n; }
    u64 size() const { return n; }
};

template <u64 n>
struct NumberList {
    i64 items[n];

    operator Numbers() const { return {items, n}; }
};

// A list of numbers, for the statement that it is written in.
template <class... T>
constexpr NumberList<sizeof...(T)> list(T... numbers) {
    return {{static_cast<i64>(numbers)...}};
}

inline Numbers list() {
    return {nullptr, 0};
}

class Sequence;

// A program; `play` plays its statements, from a table or compiled.
struct Program {
    TableHeader of;
    const SegmentSpec* segments;
    const SlotCut* cuts;  // by holders; else none
    const i64* pieces;
    void (*play)(const Program& program, Sequence& rank);
    const i64* statements = nullptr;  // of a table
    i64 number_of_words = 0;
};

// A lossy step: the key of its draws, whether this rank keeps the losses, and the place of a selection.
struct Losing {
    u64 key = 0;
    bool keeps = false;
    i64 place = 0;
};

// A segment and what the host knows of it. Its bitmap and ranks exist from the beginning (on the stream). Its
// count becomes known when it has crossed to the host; its values are made after that, in a body of just the
// right size. In capacity mode the count is the room, known from the beginning, and the actual count is the
// head of the body; segments that surely have all slots stay as they are otherwise.
struct Held {
    Segment at = {};
    bool roomy = false;  // its body has a head
    bool full = false;   // it has all slots, and gets bitmap and ranks only where a kernel reads them
    bool lent = false;   // its values are the tensor's, which nothing may change
    bool read = false;   // something is made of its values
    const void* taken = nullptr;  // what a code reads that does not lie where its values are to be
    i64 asked = FORMAT_DENSE;     // what it is sent in first; dense, which has no index, if it is not sent
    FormatCosts costs = {};
    bool counted = false;
    bool valued = false;
    bool indexed = false;    // the index is written, in at.format
    bool is_result = false;  // its values are those of the call's result, in their order
    bool lands = false;      // if the tensor may be overwritten, they are made where the result has them
    Room bitmap;             // its own; of this rank's own gradient a part of the bitmap of all
    Room ranks, body;        // its own; of this rank's own gradient there are no ranks
    Losing by;               // how it is made, if by a code or a selection
    Coding code;             // of values that travel as bytes: `at.values` are what these mean, and the body
    Room wire;               // has them alone. The index stands in front of the bytes, here
    u8* bytes = nullptr;
    u64 size = 0;                   // of these, or the most that it can be
    bool sized = false;             // the size is known
    u64 width = 0;                  // values of a unit, of one with a code
    u64 made_ahead = 0;             // values, at most, before they were counted
    bool kept = false;              // to the end of the call, whatever is spent
    bool spent = false;             // its last use has begun
    bool encoded = false;           // its values are there as bytes alone
    bool clears = false;            // each -0 of what a code reads counts as +0
    const float* before = nullptr;  // what is added to it, or null
    bool complete = false;          // it is part of the result
    bool seen = false;  // its values have raised the greatest magnitude, as far as it is part of the result
};

using Several = std::vector<Held*>;

inline Segments segments_of(const Several& which) {
    Segments found;
    for (const Held* held : which) found.push_back(held->at);
    return found;
}

inline void know_count(Held& held, u64 count) {
    held.at.count = count;
    held.counted = true;
}

// Whether its values are those of all slots, in their order.
inline bool is_range(const Held& held) {
    return held.full && held.at.count == held.at.slots;
}

inline bool all_ranges(const Several& which) {
    return std::all_of(which.begin(), which.end(), [](const Held* held) { return is_range(*held); });
}

// The bytes, rounded up for the widest loads.
inline u64 aligned(u64 bytes) {
    return (bytes + 15) / 16 * 16;
}

// Gives rooms the bytes that they ask for: released memory, and one allocation for all others.
inline void make_rooms(Queue& queue, const std::vector<Room*>& rooms, bool for_bitmaps = false) {
    u64 bytes = 0;
    for (Room* room : rooms) {
        room->at = for_bitmaps ? queue.reuse_for_bitmap(room->bytes) : queue.reuse(room->bytes);
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

// Makes `room` in all segments, of bytes_of(segment) bytes; then calls `use` for what lies in it.
template <class BytesOf, class Use>
inline void make_rooms(Queue& queue, const Several& which, Room Held::* room, const BytesOf& bytes_of,
                       const Use& use, bool for_bitmaps = false) {
    std::vector<Room*> rooms;
    for (Held* held : which) {
        (held->*room).bytes = bytes_of(*held);
        rooms.push_back(&(held->*room));
    }
    make_rooms(queue, rooms, for_bitmaps);
    if (!queue.ok()) return;
    for (Held* held : which) use(*held);
}

// Whether the index, made or to come, is the bitmap.
inline bool index_is_bitmap(const Held& held) {
    return held.indexed && held.at.format == FORMAT_BITMAP;
}

inline void make_bitmaps(Queue& queue, const Several& which) {
    make_rooms(
        queue, which, &Held::bitmap, [](const Held& held) { return aligned(8 * words_of(held.at.slots)); },
        [](Held& held) { held.at.bitmap = reinterpret_cast<u64*>(held.bitmap.at); }, true);
}

// Gives a segment whose bitmap is its index a bitmap of its own.
inline void copy_bitmap(Queue& queue, Held& held) {
    const u64* const old = held.at.bitmap;
    make_bitmaps(queue, {&held});
    if (queue.ok()) queue.copy(held.at.bitmap, old, 8 * words_of(held.at.slots));
}

// Makes room for ranks, and for bitmaps, unless the index is the bitmap.
inline void make_marks(Queue& queue, const Several& which) {
    Several separate;
    for (Held* held : which) {
        if (index_is_bitmap(*held))
            held->at.bitmap = reinterpret_cast<u64*>(held->at.index);
        else
            separate.push_back(held);
    }
    make_bitmaps(queue, separate);
    make_rooms(
        queue, which, &Held::ranks, [](const Held& held) { return aligned(8 * ranks_of(held.at.slots)); },
        [](Held& held) { held.at.ranks = reinterpret_cast<u64*>(held.ranks.at); });
}

inline bool is_coded(const Held& held) {
    return held.code.number != NOT_CODED;
}

// The layout in which a segment travels when a phase asks for a format; without its head.
inline WireLayout layout_of(const Held& held, i64 asked, u64 unit_bytes) {
    const Segment& at = held.at;
    if (is_coded(held)) {
        const WireLayout bare = wire_layout(asked, at.slots, at.count, 0, held.costs);
        return {bare.format, bare.index_bytes, bare.index_bytes + padded(held.size)};
    }
    return (held.roomy ? room_layout : wire_layout)(asked, at.slots, at.count, unit_bytes, held.costs);
}

inline u64 head_bytes(const Held& held) {
    return held.roomy ? 8 : 0;
}

// The beginning of a body.
inline u8* start_of(const Held& held) {
    return held.at.index - head_bytes(held);
}

inline u64 body_bytes(const Held& held, i64 asked, u64 unit_bytes) {
    return head_bytes(held) + layout_of(held, asked, unit_bytes).body_bytes;
}

// Whether values may lie where the caller wants the result: no index has to stand in front of them.
inline bool is_bare_result(const Held& held) {
    return held.is_result && held.asked == FORMAT_DENSE;
}

// The place of a range's values in the result, if they may lie there before the call has ended; else null.
inline u8* landing(const Queue& queue, const Held& held) {
    const bool fits = queue.overwrites && held.lands && held.at.slots * queue.row_bytes % 8 == 0;
    return fits ? static_cast<u8*>(queue.call.dense_out) + first_unit(queue, held.at.part) * queue.row_bytes
                : nullptr;
}

// Makes room for index and values of segments whose counts are known, in the format that each is asked for. A
// result's room is the caller's, and not released.
inline void make_bodies(Queue& queue, const Several& which, u64 unit_bytes) {
    std::vector<Room*> rooms;
    for (Held* held : which) {
        held->body.bytes = aligned(8 + body_bytes(*held, held->asked, unit_bytes));
        if (u8* const at = landing(queue, *held); at != nullptr && held->asked == FORMAT_DENSE)
            held->body = {at, 0};
        else if (!is_bare_result(*held))
            rooms.push_back(&held->body);
    }
    make_rooms(queue, rooms);
    if (!queue.ok()) return;
    for (Held* held : which) {
        const WireLayout layout = layout_of(*held, held->asked, unit_bytes);
        Segment& at = held->at;
        if (is_bare_result(*held)) {
            void* const dense = queue.call.dense_out;
            held->body = {static_cast<u8*>(dense ? dense : queue.allocate_alone(held->body.bytes)), 0};
        }
        at.format = layout.format;
        const u64 in_front = head_bytes(*held) + layout.index_bytes;
        u8* const start = held->body.at + (aligned(in_front) - in_front);  // values are aligned
        at.actual = held->roomy ? reinterpret_cast<u64*>(start) : nullptr;
        at.index = start + head_bytes(*held);
        at.values = at.index + layout.index_bytes;
    }
}

// Computes the bytes of values that have a code, and a known count.
inline void know_size(Held& held) {
    if (held.sized) return;
    held.size = encoded_bytes(held.code, held.at.count * held.width);
    held.sized = held.size == 0 || held.code.number != ASC_CODE;
}

// Makes room for index and bytes of segments that have a code, and known counts.
inline void make_wires(Queue& queue, const Several& which) {
    for (Held* held : which) know_size(*held);
    make_rooms(
        queue, which, &Held::wire, [](const Held& held) { return aligned(body_bytes(held, held.asked, 0)); },
        [](Held& held) {
            const WireLayout layout = layout_of(held, held.asked, 0);
            held.at.format = layout.format;
            held.at.index = held.wire.at;
            held.bytes = held.wire.at + layout.index_bytes;
        });
}

// Makes room for the values that bytes mean.
inline void make_meanings(Queue& queue, const Several& which) {
    Several apart;
    for (Held* held : which) {
        held->body = {landing(queue, *held), 0};
        held->at.values = held->body.at;
        if (held->body.at == nullptr) apart.push_back(held);
    }
    make_rooms(
        queue, apart, &Held::body, [&](const Held& held) { return aligned(held.at.count * queue.row_bytes); },
        [](Held& held) { held.at.values = held.body.at; });
}

// Makes room for values that are made before they are counted: at.count units at most, and in front of them
// the largest index that they may get.
inline void make_bodies_ahead(Queue& queue, const Several& which) {
    Several exact, roomy;
    for (Held* held : which) (held->roomy ? roomy : exact).push_back(held);
    make_bodies(queue, roomy, queue.row_bytes);
    const auto in_front = [](const Held& held) {
        return aligned(8 + most_index_bytes(held.asked, held.at.slots, held.at.count, held.costs));
    };
    make_rooms(
        queue, exact, &Held::body,
        [&](const Held& held) { return in_front(held) + aligned(held.at.count * queue.row_bytes); },
        [&](Held& held) {
            held.at.values = held.body.at + in_front(held);
            held.made_ahead = held.at.count;  // the room may be larger
        });
}

// Whether a segment whose count is known by now had room for all its values.
inline bool had_room(const Held& held) {
    return held.at.values != nullptr && (held.roomy || held.at.count <= held.made_ahead);
}

// Gives the index its place in front of the values, and releases what is left behind them.
inline void lay_out(Queue& queue, Held& held) {
    if (held.roomy) return;
    const WireLayout layout = layout_of(held, held.asked, queue.row_bytes);
    u8* const values = static_cast<u8*>(held.at.values);
    held.at.format = layout.format;
    held.at.index = values - layout.index_bytes;
    const u64 used = static_cast<u64>(values - held.body.at) + aligned(held.at.count * queue.row_bytes);
    queue.release(Room{held.body.at + used, held.body.bytes - used});
    held.body.bytes = used;
}

// Releases some memory of a segment, which nothing uses any more.
inline void release(Queue& queue, Room& room) {
    queue.release(room);
    room = {};
}

inline void release_marks(Queue& queue, Held& held) {
    release(queue, held.bitmap);
    release(queue, held.ranks);
}

inline void release(Queue& queue, Held& held) {
    release_marks(queue, held);
    release(queue, held.body);
    release(queue, held.wire);
}

inline void release_values(Queue& queue, Held& held) {
    u8* const values = static_cast<u8*>(held.at.values);
    const u64 kept = static_cast<u64>(values - held.body.at);
    queue.release(Room{values, held.body.bytes - kept});
    held.body.bytes = kept;
}

// Releases segments that were used for the last time.
inline void release(Queue& queue, Several& spent) {
    if (!queue.ok()) return;
    for (Held* held : spent) release(queue, *held);
    spent.clear();
}

// Drops a bitmap that the index holds by now.
inline void drop_bitmap(Queue& queue, Held& held) {
    release(queue, held.bitmap);
    held.at.bitmap = reinterpret_cast<u64*>(held.at.index);
}

}  // namespace zenc
