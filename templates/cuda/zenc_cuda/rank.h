// Ranks of occupied slots (docs/adr/0004-bitmap-ranking.md).
#pragma once

#include "zenc/bits.h"
#include "zenc_cuda/scan.h"
#include "zenc_cuda/search.h"

namespace zenc {

// before[w] = bits set in the words below w, for w = 0 .. words_of(slots). Segment i scans in the words from
// work + i * work_words on, which are 0 before: scan_words(words_with_total(slots)) of them.
//
// Reads 8 bytes of bitmap and writes 8 of `before` for every 64 slots.
ZENC_DEVICE void rank(const Segment* segments, i64 n, u64* work, i64 work_words) {
    for_each_segment(n, [&](u64 i) {
        const u64* const bitmap = segments[i].bitmap;
        u64* const before = segments[i].before;
        const u64 words = words_of(segments[i].slots);
        scan<u32>(
            words + 1, work + i * static_cast<u64>(work_words),
            [&](u64 w) { return w < words ? population(bitmap[w]) : 0; },
            [&](u64 w, u64 sum) { before[w] = sum; });
    });
}

}  // namespace zenc
