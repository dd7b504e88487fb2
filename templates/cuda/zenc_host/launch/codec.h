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

// The high words of every elias_fano index as a bitmap: their ranks say where each tile of slots begins.
inline Segments high_words(const Segments& segments) {
    Segments found;
    for (const Segment& segment : segments) {
        if (segment.format != FORMAT_ELIAS_FANO) continue;
        const EliasFano shape(segment.slots, segment.count);
        found.push_back(segment);
        found.back().bitmap = reinterpret_cast<u64*>(segment.index) + shape.low_words;
        found.back().slots = 64 * shape.high_words;
    }
    return found;
}

// The bitmap of every segment from its index. Returns a status for each, on the device: 0 if it is a segment
// of its count; else the bitmap becomes empty.
inline const i64* decode(Queue& queue, const Segments& segments) {
    if (segments.empty()) return nullptr;
    if (const Segments high = high_words(segments); !high.empty()) rank(queue, high);
    auto* const checks = queue.allocate_cleared<Check>(segments.size());
    auto* const status = queue.allocate<i64>(segments.size());
    queue.launch(DECODE_INDEX, Queue::blocks_for_tiles(most_words(segments), TILE_WORDS),
                 rows_for(segments.size()), segments, number_of(segments), checks, status);
    return status;
}

}  // namespace zenc
