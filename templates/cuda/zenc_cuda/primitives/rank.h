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
