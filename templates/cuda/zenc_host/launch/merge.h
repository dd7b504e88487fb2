// Launchers: segments made from others of the same part.
#pragma once

#include "zenc_host/launch/descriptor_tables.h"

namespace zenc {

static const Kernel UNION("zenc_union");
static const Kernel UNION_ENCODED("zenc_union_encoded");
static const Kernel MERGE("zenc_merge", Typed::YES);
static const Kernel MERGE_ENCODED("zenc_merge_encoded", Typed::YES);
static const Kernel FILL("zenc_fill");
static const Kernel MARK_NONZERO("zenc_mark_nonzero");
static const Kernel SPREAD("zenc_spread");

// The bitmap of to[i] = the union of those of its pieces, which are in `from`.
inline void unite(Queue& queue, const Segments& to, const std::vector<Pieces>& pieces, const Segments& from) {
    const auto [targets, of, table] = upload_all(queue, to, pieces, from);
    const u64 blocks = Queue::blocks_for(most_words(to)), rows = rows_for(to.size());
    if (any_encoded(from))
        queue.launch(UNION_ENCODED, blocks, rows, targets, number_of(to), of, table);
    else
        queue.launch(UNION, blocks, rows, targets, number_of(to), of, table);
}

// Of a block that sums some of them.
inline u64 fewest_warps(const std::vector<Pieces>& pieces) {
    u64 warps = THREADS / 32;
    for (const Pieces& of : pieces)
        if (warps_that_sum(of.number) < warps) warps = warps_that_sum(of.number);
    return warps;
}

// The values of to[i] = the sum of those of its pieces, added in their order. Bitmap and ranks are there. Of
// encoded ones a target has no more than WINDOWS, and if any is encoded, no target has more.
inline void merge(Queue& queue, const Segments& to, const std::vector<Pieces>& pieces, const Segments& from) {
    const auto [targets, of, table] = upload_all(queue, to, pieces, from);
    const u64 rows = rows_for(to.size());
    const i64 width = queue.call.width;
    if (any_encoded(from)) {
        const u64 blocks = Queue::blocks_for_tiles(most_words(to), WINDOW_WORDS * fewest_warps(pieces));
        queue.launch(MERGE_ENCODED, blocks, rows, targets, number_of(to), of, table, width);
    } else {
        const u64 blocks = blocks_for_rows(to, static_cast<u64>(row_bytes(queue.call)));
        queue.launch(MERGE, blocks, rows, targets, number_of(to), of, table, width);
    }
}

// The bitmap of to[i] = from[i]'s with all slots that to[i].format fills up. Ranks of `from` are there.
inline void fill(Queue& queue, const Segments& from, const Segments& to) {
    const auto [sources, targets] = upload_all(queue, from, to);
    queue.launch(FILL, Queue::blocks_for(most_words(to)), rows_for(to.size()), sources, targets,
                 number_of(to));
}

// The bitmap of to[i] = the slots of from[i] whose rows are not all zero.
inline void mark_nonzero(Queue& queue, const Segments& from, const Segments& to) {
    const auto [sources, targets] = upload_all(queue, from, to);
    queue.launch(MARK_NONZERO, Queue::blocks_for(32 * most_words(to)), rows_for(to.size()), sources, targets,
                 number_of(to), value_bytes(queue.call), queue.call.width);
}

// The values of to[i] = those of from[i] in the slots that to[i] has, +0 where from[i] has none.
inline void spread(Queue& queue, const Segments& from, const Segments& to) {
    const auto [sources, targets] = upload_all(queue, from, to);
    const u64 blocks = blocks_for_rows(to, static_cast<u64>(row_bytes(queue.call)));
    queue.launch(SPREAD, blocks, rows_for(to.size()), sources, targets, number_of(to), row_bytes(queue.call));
}

}  // namespace zenc
