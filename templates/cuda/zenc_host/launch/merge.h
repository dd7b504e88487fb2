// Launchers: segments made from others of the same part.
#pragma once

#include "zenc_host/queue.h"

namespace zenc {

static const Kernel SUM("zenc_sum", Typed::YES);
static const Kernel MERGE("zenc_merge", Typed::YES);
static const Kernel FILL("zenc_fill");
static const Kernel MARK_NONZERO("zenc_mark_nonzero");
static const Kernel SPREAD("zenc_spread");

// Bitmap and ranks of to[i] = the union of its pieces, which are in `from`; and the sums of their values,
// added in their order, where to[i] has room for some.
inline void sum(Queue& queue, const Segments& to, const std::vector<Pieces>& pieces, const Segments& from) {
    const u64 tiles = tiles_summed(64 * most_words(to), static_cast<u64>(row_bytes(queue.call)));
    u64* const work = queue.allocate_cleared<u64>((1 + tiles) * to.size());
    queue.launch(SUM, Queue::blocks_for_tiles(tiles, 1), rows_for(to.size()), to, number_of(to), pieces, from,
                 queue.call.width, work, 1 + tiles);
}

// The values of to[i] = the sum of those of its pieces, added in their order. Bitmap and ranks are there.
inline void merge(Queue& queue, const Segments& to, const std::vector<Pieces>& pieces, const Segments& from) {
    const u64 blocks = blocks_for_rows(to, static_cast<u64>(row_bytes(queue.call)));
    queue.launch(MERGE, blocks, rows_for(to.size()), to, number_of(to), pieces, from, queue.call.width);
}

// The bitmap of to[i] = from[i]'s with all slots that to[i].format fills up. Ranks of `from` are there.
inline void fill(Queue& queue, const Segments& from, const Segments& to) {
    queue.launch(FILL, Queue::blocks_for(most_words(to)), rows_for(to.size()), from, to, number_of(to));
}

// The bitmap of to[i] = the slots of from[i] whose rows are not all zero.
inline void mark_nonzero(Queue& queue, const Segments& from, const Segments& to) {
    queue.launch(MARK_NONZERO, Queue::blocks_for(32 * most_words(to)), rows_for(to.size()), from, to,
                 number_of(to), value_bytes(queue.call), queue.call.width);
}

// The values of to[i] = those of from[i] in the slots that to[i] has, +0 where from[i] has none.
inline void spread(Queue& queue, const Segments& from, const Segments& to) {
    const u64 blocks = blocks_for_rows(to, static_cast<u64>(row_bytes(queue.call)));
    queue.launch(SPREAD, blocks, rows_for(to.size()), from, to, number_of(to), row_bytes(queue.call));
}

}  // namespace zenc
