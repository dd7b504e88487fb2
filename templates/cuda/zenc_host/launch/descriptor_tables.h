// Tables of descriptors, and grids of kernels that take them.
#pragma once

#include <vector>

#include "zenc/launch.h"
#include "zenc/segment.h"
#include "zenc_host/driver/stream.h"

namespace zenc {

using Segments = std::vector<Segment>;

// Rows of a grid for n segments; kernels stride over those beyond.
inline u64 rows_for(u64 n) {
    constexpr u64 MOST = 65535;
    return n < MOST ? n : MOST;
}

inline i64 number_of(const Segments& segments) {
    return static_cast<i64>(segments.size());
}

// The largest of what `of` says of segments.
template <class Of>
inline u64 most(const Segments& segments, Of of) {
    u64 found = 0;
    for (const Segment& segment : segments) found = of(segment) > found ? of(segment) : found;
    return found;
}

inline u64 most_words(const Segments& segments) {
    return most(segments, [](const Segment& segment) { return words_of(segment.slots); });
}

// Blocks for kernels in which warps copy rows.
inline u64 blocks_for_rows(const Segments& segments, u64 row_bytes) {
    return Queue::blocks_for(
        32 * most(segments, [&](const Segment& segment) { return warps_for_rows(segment, row_bytes); }));
}

inline i64 value_bytes(const Call& call) {
    return DTYPE_BYTES[call.dtype];
}

inline i64 row_bytes(const Call& call) {
    return call.width * value_bytes(call);
}

}  // namespace zenc
