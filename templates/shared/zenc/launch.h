// Shares of work that launchers and kernels count alike: of a segment, for a warp or a block at a time, and
// the words of the work space of scans and sorts.
#pragma once

#include "zenc/segment.h"

namespace zenc {

constexpr u64 DIGITS = 1 << DIGIT_BITS;

// The words of a bitmap whose bits are counted for its ranks; the last one is behind all others.
ZENC_HD inline u64 words_ranked(u64 slots) {
    return (ranks_of(slots) - 1) * RANKED_WORDS + 1;
}

// The words for a scan of n numbers: a counter, and a state a tile. They are 0 before.
ZENC_HD inline u64 scan_words(u64 n) {
    return 1 + ceil_divide(n, SCAN_TILE);
}

// Bitmaps of so few slots are ranked by the last block of the kernel that marks them.
constexpr u64 RANKED_BY_A_BLOCK = 64 * 4 * SCAN_TILE;

// Whether the bitmap of a received segment exists before it is ranked: it came itself, or was made of listed
// bits.
ZENC_HD inline bool has_bitmap(const Segment& segment) {
    return segment.format == FORMAT_ELIAS_FANO ||
           (segment.format == FORMAT_BITMAP && segment.bitmap == reinterpret_cast<const u64*>(segment.index));
}

// The counts of all digits in all tiles of n keys.
ZENC_HD inline u64 digit_words(u64 n) {
    return ceil_divide(n, SORT_TILE) * DIGITS;
}

// Columns of a row that are summed together: row y of the grid has range y.
constexpr u64 SUM_COLUMNS = 64;

// The list of popular rows of n inputs: their number, which is 0 before, and they. Rows of more than
// MOST_INPUTS are popular: blocks sum them, others are summed by a thread a column.
ZENC_HD inline u64 popular_words(u64 n) {
    return 1 + n / (MOST_INPUTS + 1);
}

// The bits of a number below n.
ZENC_HD inline u64 bits_below(u64 n) {
    u64 bits = 0;
    for (; n > 1; n = ceil_divide(n, 2)) ++bits;
    return bits;
}

constexpr u64 WIDE_ROW = 128;  // bytes: from here on a warp copies a row at a time
constexpr u32 WIDE_ROWS = 8;  // of one warp: so many that one search for the first is little, and few to copy

// Index sets of all ranks are read a tile at a time: a block has the same words of all of them in shared
// memory, SET_WORDS together. Of more ranks than that a tile has one word of each, in far memory.
constexpr u64 FAR_BLOCKS = 16;  // that share far memory

// Words of a tile, at most one for each thread. Each tile has a number for each rank in memory: no more than
// 1/16 of a bitmap where that can be had; but where rows are wide, and such numbers are little, as many tiles
// as keep all of a GPU busy.
ZENC_HD inline u64 words_of_tile(u64 ranks, u64 units, u64 row_bytes) {
    constexpr u64 MANY_TILES = 512;
    const u64 fitting = SET_WORDS / ranks, most = fitting < THREADS ? fitting : THREADS;
    if (most <= 1) return 1;
    const u64 least = row_bytes >= WIDE_ROW ? 1 : 16 * ranks < most ? 16 * ranks : most;
    const u64 spread = ceil_divide(words_of(units), MANY_TILES);
    return spread < least ? least : spread > most ? most : spread;
}

// The index sets of ranks. A unit with one holder is owned by it. Units with several are numbered, ascending.
struct IndexSets {
    const Segment* sets;  // [ranks], over all units: where kernels are launched a table of its own
    u64 ranks;
    u64 words;     // of a tile, words_of_tile
    u64* far;      // [blocks, far_words], or null
    u64* several;  // [tiles + 1]: units of several holders before each tile
    u16* owners;   // of these units
    u64* starts;   // [ranks, tiles]: units of each owner before each tile, and all of earlier owners

    ZENC_HD u64 units() const { return sets->slots; }
    ZENC_HD u64 tiles() const { return ceil_divide(words_of(units()), words); }
    ZENC_HD IndexSets with(const Segment* table) const {
        return {table, ranks, words, far, several, owners, starts};
    }
};

// Words of far memory that a block needs: 64 units of each rank, and 16 bits.
ZENC_HD inline u64 far_words(u64 ranks) {
    return ranks <= SET_WORDS ? 0 : ranks + ceil_divide(ranks, 4);
}

// The bytes of a mask of a unit's holders: a bit a rank.
ZENC_HD inline u64 mask_bytes(u64 ranks) {
    return ceil_divide(ranks, 8);
}

// Words of a bitmap whose rows one warp copies at a time: up to 16 KiB. 0 for wide rows, which are taken by
// their numbers.
ZENC_HD inline u32 words_a_warp(u64 row_bytes) {
    if (row_bytes >= WIDE_ROW) return 0;
    const u64 words = 256 / (row_bytes == 0 ? 1 : row_bytes);
    return words < 32 ? static_cast<u32>(words) : 32;
}

constexpr u64 MARKED_BYTES = 1 << 15;  // of a row of a dense tensor that a warp looks at

// Tiles of a bitmap that is made with its ranks, a word a thread.
ZENC_HD inline u64 tiles_of_words(u64 slots) {
    return ceil_divide(words_ranked(slots), THREADS);
}

// Words of a union that a warp takes at a time where values are summed with it.
ZENC_HD inline u64 words_summed(u64 row_bytes) {
    return row_bytes <= 8 || row_bytes >= WIDE_ROW ? 32 : row_bytes <= 16 ? 16 : 8;
}

// Tiles of blocks that sum a segment.
ZENC_HD inline u64 tiles_summed(u64 slots, u64 row_bytes) {
    return ceil_divide(words_ranked(slots), THREADS / 32 * words_summed(row_bytes));
}

// Warps that copy all rows of a segment at once.
ZENC_HD inline u64 warps_for_rows(const Segment& segment, u64 row_bytes) {
    const u32 words = words_a_warp(row_bytes);
    return words == 0 ? ceil_divide(segment.count, WIDE_ROWS) : ceil_divide(words_of(segment.slots), words);
}

}  // namespace zenc
