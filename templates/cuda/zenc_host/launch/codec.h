// Launchers: the index of segments to bytes and back.
#pragma once

#include "zenc_host/call/segment_state.h"
#include "zenc_host/launch/rank.h"

namespace zenc {

static const Kernel ENCODE_INDEX("zenc_encode_index");
static const Kernel DECODE_INDEX("zenc_decode_index");

inline u64 most_index_words(const Segments& segments) {
    return most(segments, [](const Segment& segment) {
        return index_bytes(segment.format, segment.slots, segment.count) / 8;
    });
}

// The index of every segment, and zeros behind its values. Bitmap and ranks are there.
inline void encode(Queue& queue, const Segments& segments) {
    if (segments.empty()) return;
    const u64 words = most_words(segments), index = most_index_words(segments);
    queue.launch(ENCODE_INDEX, Queue::blocks_for(words < index ? index : words), rows_for(segments.size()),
                 segments, number_of(segments), row_bytes(queue.call));
}

// The high words of every elias_fano index as a bitmap with room for ranks, which say where each tile of
// slots begins; of other segments nothing.
inline Segments high_words(Queue& queue, const Segments& segments) {
    Segments found(segments.size(), Segment{});
    for (u64 i = 0; i < segments.size(); ++i) {
        if (segments[i].format != FORMAT_ELIAS_FANO) continue;
        const EliasFano shape(segments[i].slots, segments[i].count);
        found[i].bitmap = reinterpret_cast<u64*>(segments[i].index) + shape.low_words;
        found[i].slots = 64 * shape.high_words;
        found[i].ranks = queue.allocate<u64>(ranks_of(found[i].slots));
    }
    return found;
}

// Bitmap and ranks of every segment from its index. Returns a status for each, on the device: 0 if it is a
// segment of its count; else it becomes empty.
inline const i64* decode(Queue& queue, const Segments& segments) {
    if (segments.empty()) return nullptr;
    const Segments high = high_words(queue, segments);
    Segments ranked;
    for (const Segment& each : high)
        if (each.ranks != nullptr) ranked.push_back(each);
    if (!ranked.empty()) rank(queue, ranked);
    auto* const checks = queue.allocate_cleared<Check>(segments.size());
    auto* const status = queue.allocate<i64>(segments.size());
    const u64 tiles = tiles_of_words(64 * most_words(segments)), work = 1 + tiles;
    queue.launch(DECODE_INDEX, Queue::blocks_for_tiles(tiles, 1), rows_for(segments.size()), segments, high,
                 number_of(segments), checks, status, queue.allocate_cleared<u64>(work * segments.size()),
                 work);
    for (const Segment& each : ranked) queue.release(each.ranks, ranks_of(each.slots));
    return status;
}

}  // namespace zenc
