// How much of a segment one warp or one block works on at a time: kernels stride by it, launchers count with
// it.
#pragma once

#include "zenc/segment.h"

namespace zenc {

constexpr u64 TILE_WORDS = 2 * THREADS;  // of a bitmap that one block decodes at a time
constexpr u64 WIDE_ROW = 128;            // bytes: from here on a warp copies a row at a time
constexpr u32 WIDE_ROWS = 8;  // of one warp: so many that one search for the first is little, and few to copy

// Segments that have no bitmap are read a window at a time, by a warp: a word of the bitmap for each lane. Of
// the pieces of one sum a block has so many windows in shared memory, and so no sum has more pieces.
constexpr u64 WINDOW_WORDS = 32;
constexpr u64 WINDOWS = 64;

// The warps of a block that sum `pieces` segments, 1 to WINDOWS of them, each in windows of its own.
ZENC_HD inline u64 warps_that_sum(u64 pieces) {
    constexpr u64 MOST = THREADS / 32;
    return WINDOWS / pieces < MOST ? WINDOWS / pieces : MOST;
}

// Words of a bitmap whose rows one warp copies at a time: up to 16 KiB. 0 for wide rows, which are taken by
// their numbers.
ZENC_HD inline u32 words_a_warp(u64 row_bytes) {
    if (row_bytes >= WIDE_ROW) return 0;
    const u64 words = 256 / (row_bytes == 0 ? 1 : row_bytes);
    return words < 32 ? static_cast<u32>(words) : 32;
}

// Warps that copy all rows of a segment at once.
ZENC_HD inline u64 warps_for_rows(const Segment& segment, u64 row_bytes) {
    const u32 words = words_a_warp(row_bytes);
    return words == 0 ? ceil_divide(segment.count, WIDE_ROWS) : ceil_divide(words_of(segment.slots), words);
}

}  // namespace zenc
