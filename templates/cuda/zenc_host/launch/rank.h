// Launcher: ranks of bitmaps.
#pragma once

#include "zenc/work.h"
#include "zenc_host/queue.h"

namespace zenc {

static const Kernel RANK("zenc_rank");

// The ranks of every segment.
inline void rank(Queue& queue, const Segments& segments) {
    const u64 numbers = words_ranked(64 * most_words(segments));
    const u64 words = scan_words(numbers);
    u64* const work = queue.allocate_cleared<u64>(words * segments.size());
    queue.launch(RANK, Queue::blocks_for_tiles(numbers, SCAN_TILE), rows_for(segments.size()), segments,
                 number_of(segments), work, words);
}

}  // namespace zenc
