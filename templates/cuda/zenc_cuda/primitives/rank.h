// Ranks of occupied slots (docs/adr/0004-bitmap-ranking.md).
#pragma once

#include "zenc/bits.h"
#include "zenc_cuda/primitives/scan.h"
#include "zenc_cuda/primitives/search.h"

namespace zenc {

// Writes those ranks that begin with words of this warp: `at` is this lane's, which follow each other from a
// multiple of RANKED_WORDS on, and `before` bits are set in the words before it. There are `ranked` words.
ZENC_DEVICE void store_ranks(u64* ranks, u64 at, u64 ranked, u64 before) {
    u64 more[3];
    for (u32 k = 0; k < 3; ++k) more[k] = __shfl_down_sync(ALL_LANES, before, 2 * k + 2) - before;
    if (at < ranked && at % RANKED_WORDS == 0)
        ranks[at / RANKED_WORDS] = made_rank(before, more[0], more[1], more[2]);
}

// Writes word `at` of a bitmap, unless that is null, and its ranks: lanes of a warp have words that follow
// each other from a multiple of RANKED_WORDS on, and so have the warps of a tile, and all tiles; lanes
// without a word are at ~0. Returns how many bits are set before the warp's words.
ZENC_DEVICE u64 store_words(const Segment& to, u64 at, u64 word, u64 tile, u64* states) {
    if (at < words_of(to.slots) && to.bitmap != nullptr) to.bitmap[at] = word;
    const u64 mine = population(word), up_to = inclusive_in_warp(mine);
    const u64 before = sum_of_warps_before(__shfl_sync(ALL_LANES, up_to, WARP - 1), states, tile);
    store_ranks(to.ranks, at, words_ranked(to.slots), before + up_to - mine);
    return before;
}

// The ranks of all segments. Segment i scans in the words from work + i * work_words on, which are 0 before:
// scan_words(words_ranked(slots)) of them.
//
// Reads 64 bytes of bitmap and writes 8 of ranks for every 512 slots.
ZENC_DEVICE void rank(const Segment* segments, i64 n, u64* work, i64 work_words) {
    for_each_segment(n, [&](u64 i) {
        const u64* const bitmap = segments[i].bitmap;
        u64* const ranks = segments[i].ranks;
        const u64 words = words_of(segments[i].slots), ranked = words_ranked(segments[i].slots);
        scan<u32>(
            ranked, work + i * static_cast<u64>(work_words),
            [&](u64 w) { return w < words ? population(bitmap[w]) : 0; },
            [&](u64 w, u64 sum) { store_ranks(ranks, w, ranked, sum); });
    });
}

}  // namespace zenc
